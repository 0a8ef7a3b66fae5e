"""What a pass has to do, counted: weights that are read, floating-point operations."""


def active_parameters(model):
    """Weights that one token is multiplied with: of the experts only the chosen ones, an embedding only as the head."""
    c = model.config
    total = sum(array.size for array in model.params.values())
    if not c.tie_word_embeddings:
        total -= c.vocab_size * c.hidden_size
    if c.use_moe:
        idle = c.num_experts - c.num_experts_per_tok
        total -= idle * c.num_hidden_layers * 3 * c.hidden_size * c.moe_intermediate_size
    return total


def prefill_flops(model, case):
    """Floating-point operations of a prefill: the weights for every token, the head for the last, causal attention."""
    c, (batch, prompt) = model.config, (case["batch"], case["prompt"])
    head = c.vocab_size * c.hidden_size
    weights = 2 * batch * (prompt * (active_parameters(model) - head) + head)
    pairs = prompt * (prompt + 1) // 2  # of a query and a key that it may see
    return weights + 4 * batch * pairs * c.num_hidden_layers * c.num_attention_heads * c.head_dim
