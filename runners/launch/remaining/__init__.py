"""What a launch still has to do.

`plan` says which trainings are left, `sharing` what other launches hold, and `units` what can start now.
"""
