"""How the models in the box are made: words, grammar, corpus, tokenizer, training, evaluation, card."""
