"""Archives: a store's past in object storage (docs/archives.md). Needs the extra ``archive``, but for the codecs."""
