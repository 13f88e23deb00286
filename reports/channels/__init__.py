"""Channel runs (`spec.model` is "dsps"): their plan, frames and measures."""
