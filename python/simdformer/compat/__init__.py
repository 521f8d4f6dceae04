"""Names of other packages: scripts written for them run with only the import and the path of the model changed.

An option that is not supported raises `NotImplementedError`, which names it.
"""
