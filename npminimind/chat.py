"""ChatML, the chat format of MiniMind: ``<|im_start|>role\\n…<|im_end|>\\n``."""

import importlib.util

ROLES = ("system", "user", "assistant")


def render(messages, thinking, add_generation_prompt, tools, template):
    """Text of a conversation, by the checkpoint's template if jinja2 is there, else the built-in form."""
    check_messages(messages)
    if template is not None and importlib.util.find_spec("jinja2"):
        return render_jinja(template, messages, thinking, add_generation_prompt, tools)
    if tools or any(m.get("tool_calls") for m in messages):
        raise ValueError("tools need the checkpoint's own template: pip install 'npminimind[chat]'")
    unknown = [m["role"] for m in messages if m["role"] not in ROLES]
    if unknown:
        raise ValueError(f"the built-in chat format has no role {unknown[0]!r}: pip install 'npminimind[chat]'")
    return chatml(messages, thinking, add_generation_prompt)


def chatml(messages, thinking=False, add_generation_prompt=True):
    """MiniMind's ChatML. Assistant turns carry a ``<think>`` block, empty where there is no thought.

    Parameters
    ----------
    messages : list of {"role", "content"}
        A thought may stand in ``reasoning_content`` or as ``<think>…</think>`` in front of the content.
    thinking, add_generation_prompt : bool

    Examples
    --------
    >>> chatml([{"role": "user", "content": "Hi"}])
    '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n'
    >>> chatml([{"role": "user", "content": "Hi"}], thinking=True)[-30:]
    '<|im_start|>assistant\\n<think>\\n'
    """
    text = "".join(f"<|im_start|>{m['role']}\n{turn(m)}<|im_end|>\n" for m in messages)
    if add_generation_prompt:
        text += "<|im_start|>assistant\n<think>\n" + ("" if thinking else "\n</think>\n\n")
    return text


def turn(message):
    content = message["content"]
    if message["role"] != "assistant":
        return content
    thought = message.get("reasoning_content")
    if thought is None:
        thought = ""
        if "</think>" in content:
            thought = content.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
            content = content.split("</think>")[-1].lstrip("\n")
    thought, content = thought.strip("\n"), content.lstrip("\n")
    return f"<think>\n{thought}\n</think>\n\n{content}"


def render_jinja(template, messages, thinking, add_generation_prompt, tools):
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    try:
        return environment.from_string(template).render(
            messages=messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            open_thinking=thinking,  # MiniMind's name
            enable_thinking=thinking,  # Qwen3's name
        )
    except TemplateError as error:
        raise ValueError(f"the checkpoint's chat template can't be rendered: {error}") from None


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    """Plain JSON, as transformers renders it; jinja2's own filter escapes for HTML."""
    import json

    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    from jinja2 import TemplateError

    raise TemplateError(message)


def check_messages(messages):
    if isinstance(messages, str):
        raise TypeError('messages is a list: [{"role": "user", "content": "…"}]')
    if not messages:
        raise ValueError('messages are empty: need at least [{"role": "user", "content": "…"}]')
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise TypeError(f"a message is a dict with a role and content, not {message!r}")
        if not isinstance(message.get("content"), str) and not message.get("tool_calls"):
            raise TypeError(f"the content of a message must be text, not {message.get('content')!r}")
