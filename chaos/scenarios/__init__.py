"""What can be run: each verb `run NAME` has its scenario in the file of that name."""
