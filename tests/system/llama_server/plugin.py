"""A pytest plugin for the peer's suite: its models are not downloaded before the tests."""
import utils  # the suite's

utils.ServerPreset.load_all = staticmethod(lambda: None)
utils.DEFAULT_HTTP_TIMEOUT = 20
