//! A llama-architecture decoder as callables on the chip: weights, tokenizer, sources, plain reference.
