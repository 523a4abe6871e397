"""Data, looked at before hours of training: what is doubtful in it, and how to mend it."""
