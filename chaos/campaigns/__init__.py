"""Many runs: each verb `campaign NAME` has the file of that name; what they share is in `chaos/campaign.py`."""
