"""Body decoders: MessagePack, Avro, Protobuf and those of plug-ins, in processes of their own, as JSON."""
