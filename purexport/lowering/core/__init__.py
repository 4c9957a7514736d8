"""What every rule is written with: the emitter, the registry, type promotion and constant folding."""
