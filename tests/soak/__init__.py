"""The whole product at once, under kills: a served store, its archive, producers, consumers, Spark, and readers."""
