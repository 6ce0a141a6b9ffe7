"""What each section of a report says: functions from the report's inputs to plain sections."""
