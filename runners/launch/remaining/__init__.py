"""What a launch still has to do: `plan` says which trainings are left, and `units` what can start now."""
