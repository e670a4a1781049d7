class Refused(Exception):
    """What cannot be converted: why, and what to do."""
