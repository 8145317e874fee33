"""Archives: a store's past in object storage (docs/archives.md).

All but the codecs need the extra ``archive``, or ``hdfs`` for HDFS.
"""
