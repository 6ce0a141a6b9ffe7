"""Where the files of a store are kept: in a folder of this machine or its network, or in a bucket of an object store.

The rest of `runners.store` reads and writes through a `Storage`, so nothing else asks which of the two it is.
"""
