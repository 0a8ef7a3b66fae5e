"""A small byte-level BPE with MiniMind-3's special tokens at ids 0-35.

BPE on text from templates would swallow whole phrases into one token. So the text is cut first - Chinese at the words
of the lexicon, English at words, every punctuation mark and newline alone - and merges are learnt inside the pieces
only. The tokenizer that is saved needs no such cutting: it simply has no merges across.
"""

import json
import re
from pathlib import Path

from . import corpus, lexicon

SPECIAL = """
    <|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>
    <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>
    <|audio_start|> <|audio_end|> <|audio_pad|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single>
    <tool_call> </tool_call> <tool_response> </tool_response> <think> </think> <|buffer1|> <|buffer2|> <|buffer3|>
    <|buffer4|> <|buffer5|> <|buffer6|> <|buffer7|> <|buffer8|> <|buffer9|>
""".split()
FIRST_VISIBLE = 21  # from <tool_call> on the marks are ordinary text to a decoder that skips special tokens

# ChatML as MiniMind-3 writes it, for the roles that this model knows.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
{%- set text = message.content or '' -%}
{%- set thought = message.reasoning_content or '' -%}
{%- if not thought and '</think>' in text -%}
{%- set thought = text.split('</think>')[0].split('<think>')[-1] -%}
{%- set text = text.split('</think>')[-1] -%}
{%- endif -%}
{{- '<|im_start|>assistant\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' -}}
{{- text.lstrip('\\n') + '<|im_end|>\\n' -}}
{%- else -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n<think>\\n' -}}
{%- if not open_thinking -%}{{- '\\n</think>\\n\\n' -}}{%- endif -%}
{%- endif -%}
"""


def pieces(text, words):
    """Cut a text into the pieces inside which merges may be learnt."""
    chinese = re.compile("|".join(map(re.escape, words)) + "|[\u4e00-\u9fff]")
    for part in re.findall(r" ?[A-Za-z]+|\d+|[\u4e00-\u9fff]+| ?[^\sA-Za-z\d\u4e00-\u9fff]|\s", text):
        if "\u4e00" <= part[0] <= "\u9fff":
            yield from chinese.findall(part)
        else:
            yield part


def train(documents=20_000, vocab_size=2048, seed=corpus.SEED):
    """Train and return the tokenizer as the JSON object that ``tokenizer.json`` holds."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    words = lexicon.chinese_words()
    marks = re.compile("|".join(map(re.escape, SPECIAL)))

    def stream():
        for _, (_, parts) in zip(range(documents), corpus.documents(seed)):
            for text in marks.split(corpus.text_of(parts)):
                yield from pieces(text, words)

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        stream(),
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
            special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL],
        ),
    )
    data = json.loads(tokenizer.to_str())
    for token in data["added_tokens"]:
        token["special"] = token["id"] < FIRST_VISIBLE
    return data


def config():
    """What ``tokenizer_config.json`` holds: enough for transformers and for npminimind."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>",
        "add_bos_token": False,
        "add_eos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        "added_tokens_decoder": {
            str(i): {
                "content": t,
                "special": i < FIRST_VISIBLE,
                "normalized": False,
                "lstrip": False,
                "rstrip": False,
                "single_word": False,
            }
            for i, t in enumerate(SPECIAL)
        },
        "chat_template": CHAT_TEMPLATE,
    }


def save(data, folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config(), ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
    )
