"""The models in the box: complete, small, consistent, and able to speak; and the text they were trained on."""

import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest

import npminimind

FOLDER = Path(__file__).resolve().parent.parent / "reference_weights"
sys.path.insert(0, str(FOLDER))

from training import corpus, evaluate, grammar, questions, stories, tokenizer  # noqa: E402

MODELS = [name for name in ("minimind-tiny", "minimind-tiny-moe") if (FOLDER / name / "model.safetensors").exists()]
LIMITS = {"minimind-tiny": 8_000_000, "minimind-tiny-moe": 6_000_000}
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
LANGS = ("en", "zh")

each_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def models():
    return {name: npminimind.load(name) for name in MODELS}


def read(name, file):
    return json.loads((FOLDER / name / file).read_text(encoding="utf-8"))


# --- the folders --------------------------------------------------------------------------------------------------


@each_model
def test_folder_is_complete_and_small(name):
    missing = [file for file in (*FILES, "evaluation.json", "README.md") if not (FOLDER / name / file).is_file()]
    assert not missing
    assert (FOLDER / name / "model.safetensors").stat().st_size <= LIMITS[name]


@each_model
def test_tensors_are_what_the_config_says(name):
    """Names and shapes worked out here from the config alone."""
    c = read(name, "config.json")
    hidden, heads, kv, d = (c[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    inner = c["moe_intermediate_size"] if c["use_moe"] else c["intermediate_size"]
    expected = {"model.embed_tokens.weight": [c["vocab_size"], hidden], "model.norm.weight": [hidden]}
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        expected |= {layer + f"{n}_layernorm.weight": [hidden] for n in ("input", "post_attention")}
        expected |= {layer + f"self_attn.{n}_norm.weight": [d] for n in "qk"}
        expected |= {layer + f"self_attn.{n}_proj.weight": [kv * d, hidden] for n in "kv"}
        expected |= {
            layer + "self_attn.q_proj.weight": [heads * d, hidden],
            layer + "self_attn.o_proj.weight": [hidden, heads * d],
        }
        blocks = [f"mlp.experts.{e}." for e in range(c["num_experts"])] if c["use_moe"] else ["mlp."]
        for block in blocks:
            expected |= {layer + block + f"{n}_proj.weight": [inner, hidden] for n in ("gate", "up")}
            expected |= {layer + block + "down_proj.weight": [hidden, inner]}
        if c["use_moe"]:
            expected |= {layer + "mlp.gate.weight": [c["num_experts"], hidden]}

    data = (FOLDER / name / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    assert {key: entry["shape"] for key, entry in header.items()} == expected
    assert {entry["dtype"] for entry in header.values()} == {"F16"}


@each_model
def test_architecture_is_minimind_3_with_every_feature_on(name):
    c = read(name, "config.json")
    assert c["num_attention_heads"] > c["num_key_value_heads"] > 1
    assert c["tie_word_embeddings"] and c["rms_norm_eps"] == 1e-6 and c["rope_theta"] == 1e6
    assert (c["bos_token_id"], c["eos_token_id"]) == (1, 2)
    if c["use_moe"]:
        assert (c["num_experts"], c["num_experts_per_tok"], c["norm_topk_prob"]) == (4, 1, True)


def test_both_models_share_one_tokenizer():
    assert len({(FOLDER / name / "tokenizer.json").read_bytes() for name in MODELS}) <= 1


# --- tokenizer and template -----------------------------------------------------------------------------------------


def test_special_ids_are_minimind_3s(models):
    for model in models.values():
        backend = model.tokenizer.backend
        assert [backend.id_to_token(i) for i in range(36)] == tokenizer.SPECIAL
        assert backend.get_vocab_size() == model.config.vocab_size
    fixed = {0: "<|endoftext|>", 1: "<|im_start|>", 2: "<|im_end|>", 25: "<think>", 26: "</think>", 35: "<|buffer9|>"}
    assert {i: tokenizer.SPECIAL[i] for i in fixed} == fixed


TEXTS = ["Once upon a time", "从前，森林里住着一只小狐狸。", "3 + 4 = 7\n", "😀龘 naïve", " ", "\t\n\n"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(models, text):
    for model in models.values():
        assert model.tokenizer.decode(model.tokenizer.encode(text)) == text


def test_slots_are_tokens(models):
    """Names and things are whole tokens inside a sentence, so that attention can carry one as one."""
    from training import lexicon

    encode = next(iter(models.values())).tokenizer.encode
    inside = [" " + e["word"] for e in lexicon.NAMES["en"] + lexicon.THINGS["en"]]
    inside += [e["word"] for e in lexicon.NAMES["zh"] + lexicon.THINGS["zh"]]
    whole = sum(len(encode(word)) == 1 for word in inside)
    assert whole / len(inside) > 0.9


def test_prompt_is_chatml(models):
    for model in models.values():
        template = model.tokenizer.apply_chat_template
        user = [{"role": "user", "content": "你好"}]
        head = "<|im_start|>user\n你好<|im_end|>\n<|im_start|>assistant\n<think>\n"
        assert template(user) == head + "\n</think>\n\n"
        assert template(user, thinking=True) == head


# --- the training text ----------------------------------------------------------------------------------------------


def test_corpus_is_the_same_every_time():
    """The fingerprint of what the published models were trained on; it changes only when they are trained again."""
    assert corpus.fingerprint(300) == corpus.fingerprint(300)
    assert corpus.fingerprint(300) == "a0cde9c1edae47ab6c65e03ee2d60c6005da8520ec33d7c77661502b00c51f11"


@pytest.mark.parametrize("lang", LANGS)
def test_a_story_whose_animals_are_one_and_the_same_is_not_read(lang):
    """The grammar gives nobody a friend of its own kind, and nothing is swapped for itself."""
    rng = random.Random(0)
    for plot, same in (("wish", ("friend", "other")), ("noise", ("kind", "friend")), ("market", ("second", "third"))):
        slots = stories.cast(rng, lang)
        assert stories.read("".join(stories.tell(rng, lang, slots, plot)), lang)[0] == plot
        text = "".join(stories.tell(rng, lang, slots | {same[1]: slots[same[0]]}, plot))
        assert stories.read(text, lang) is None


def sample_of_the_corpus(n=6000):
    return [(lang, corpus.text_of(parts)) for _, (lang, parts) in zip(range(n), corpus.documents())]


def test_held_out_combinations_are_not_in_the_text():
    """Told from the finished text: every story that the grammar reads, every question that the evaluation asks."""
    documents = sample_of_the_corpus()
    told = 0
    for lang, text in documents:
        body = text.split("</think>\n\n")[-1].removeprefix("<|im_start|>").removesuffix("<|im_end|>")
        found = stories.read(body, lang)
        if found:
            plot, slots = found
            assert not stories.is_held_out(lang, slots, plot), text
            told += 1
    assert told > 1000
    everything = "\n".join(text for _, text in documents)
    rng, asked = random.Random(5), 0
    for kind in questions.COMPOSED:
        for lang in LANGS:
            for question in evaluate.different(rng, lang, kind, 20):
                # A second turn ("What is my name?") is the same for every name: look for the first.
                said = question.before[0][0] if question.before else question.ask
                assert f"<|im_start|>user\n{said}<|im_end|>" not in everything
                asked += 1
    assert asked > 300


def test_every_document_ends_and_is_one_row_long_at_most(models):
    encode = next(iter(models.values())).tokenizer.encode
    for lang, text in sample_of_the_corpus(600):
        assert text.endswith("<|im_end|>")
        repeated = any(text.count(line) > 8 for _, line, _ in questions.REFRAINS[lang])
        assert len(encode(text)) <= 256 or repeated or text.count("<|im_start|>user") > 2


def test_grammar_recognises_what_it_writes():
    rng = random.Random(6)
    for lang in LANGS:
        for _ in range(60):
            slots, plot = stories.draw(rng, lang)
            text = "".join(stories.tell(rng, lang, slots, plot))
            found_plot, found = stories.read(text, lang)
            assert (found_plot, found["hero"], found["obj"]) == (plot, slots["hero"], slots["obj"])
            other = "Zoe" if lang == "en" else "小明"
            assert stories.read(text.replace(slots["hero"]["word"], other), lang) is None


def test_a_right_answer_is_right_and_another_is_not():
    rng = random.Random(7)
    for kind in questions.KINDS:
        for lang in LANGS:
            question = questions.draw(rng, lang, kind)
            if kind != "story":
                assert question.is_right(question.written) or kind == "song"
            assert not question.is_right(question.written + " no") or kind == "story"


def test_weighted_choice_against_the_shares():
    rng = random.Random(8)
    drawn = [grammar.weighted(rng, {"a": 3, "b": 1}) for _ in range(4000)]
    assert abs(drawn.count("a") / 4000 - 0.75) < 0.03


# --- the models speak -----------------------------------------------------------------------------------------------

KNOWN = [
    ("What does the cow say?", "The cow says moo."),
    ("What is the opposite of hot?", "The opposite of hot is cold."),
    ("What is 3 + 4?", "3 + 4 = 7."),
    ("What colour is snow?", "Snow is white."),
    ("Which day comes after Monday?", "Tuesday comes after Monday."),
    ("2加5等于几？", "2 + 5 = 7。"),
    ("草是什么颜色？", "草是绿色的。"),
    ("“大”的反义词是什么？", "“大”的反义词是“小”。"),
]
KNOWS = {"minimind-tiny": 7, "minimind-tiny-moe": 5}  # of 8: one fewer than measured, for other BLAS libraries


@each_model
def test_answers(models, name):
    model = models[name]
    prompts = [model.tokenizer.apply_chat_template([{"role": "user", "content": ask}]) for ask, _ in KNOWN]
    results = evaluate.complete(model, prompts, max_new_tokens=30)
    right = sum(ended and text == answer for (text, ended), (_, answer) in zip(results, KNOWN))
    assert right >= KNOWS[name], results


@each_model
def test_stories_end(models, name):
    results = evaluate.complete(models[name], ["Once upon a time", "从前"], do_sample=True, rng=3)
    assert all(ended for _, ended in results)
    assert all(len(text) > 60 for text, _ in results)


@each_model
def test_refrain_loops_greedily_and_leaves_when_sampled(models, name):
    prompt = "Drip, drop, says the rain on the roof, drip, drop, says"
    [(_, greedy_ended)] = evaluate.complete(models[name], [prompt], max_new_tokens=120)
    sampling = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "rng": 3}
    sampled = evaluate.complete(models[name], [prompt] * 4, max_new_tokens=200, **sampling)
    assert not greedy_ended
    assert sum(ended for _, ended in sampled) >= 3


@each_model
def test_evaluation_belongs_to_these_weights(models, name):
    """The numbers of the card are those of the files beside it: one loss and two counts, measured again."""
    report = read(name, "evaluation.json")
    assert report["bytes"]["model.safetensors"] == (FOLDER / name / "model.safetensors").stat().st_size
    assert report["parameters"] == sum(p.size for p in models[name].params.values())
    s = report["samples"]["en"]["raw"][0]
    assert evaluate.complete(models[name], [s["prompt"]], max_new_tokens=60)[0][0].startswith(s["text"][:80])


# --- a second opinion -------------------------------------------------------------------------------------------------


@pytest.mark.parity
@each_model
def test_transformers_agrees(models, name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = str(FOLDER / name)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    ours = models[name]
    texts = ["Once upon a time a shy fox called Mia lived by the sea.", "从前，森林里住着一只小小的刺猬。"]
    for text in texts:
        ids = ours.tokenizer.encode(text)
        assert tokens(text)["input_ids"] == ids
        with torch.no_grad():
            logits = theirs(torch.tensor([ids])).logits.numpy()
        np.testing.assert_allclose(ours([ids]).logits, logits, atol=2e-4, rtol=0)
    for text in ("Once upon a time", "从前"):
        ids = ours.tokenizer.encode(text)
        expected = theirs.generate(torch.tensor([ids]), max_new_tokens=60, do_sample=False)[0].tolist()
        assert ours.generate([ids], max_new_tokens=60, do_sample=False)[0].tolist() == expected


@pytest.mark.parity
@each_model
def test_template_agrees_with_transformers(models, name):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("jinja2")
    theirs = transformers.AutoTokenizer.from_pretrained(str(FOLDER / name))
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "你好"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi!"},
        {"role": "user", "content": "Who are you?"},
    ]
    for thinking in (False, True):
        expected = theirs.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, open_thinking=thinking
        )
        assert models[name].tokenizer.apply_chat_template(messages, thinking=thinking) == expected
