"""Language models: a model or a folder of transformers becomes a folder that a runtime generates text from."""
