"""Cases of the sampling stages, in MiniMind's order, and of torch's own draw."""

import numpy as np
from declare import Suite, acceptable, case, floats, grid, invalid, normal

INF = float("inf")
CHAPTER = [[2.0, 1.0, 0.5]]
SIX = [[2.0, 5.0, 1.0, 4.0, 0.5, 3.0]]
LAST_DOUBLE = 1 - 2.0**-53  # the greatest number below 1 that the draw can get


def log(probabilities):
    """Logits whose softmax is (nearly) this, rounded to float32."""
    with np.errstate(divide="ignore"):
        return floats(np.log(np.asarray(probabilities, np.float64)))


TEMPERATURE = [
    case(13001, "half", "chapter 10.4: sharper", logits=CHAPTER, temperature=0.5),
    case(13002, "one", "unchanged", logits=CHAPTER, temperature=1.0),
    case(13003, "two", "chapter 10.4: flatter", logits=CHAPTER, temperature=2.0),
    case(13004, "default", "0.85, rows", logits=grid(13004, 2, 6), temperature=0.85),
    case(13005, "masked", "−inf stays −inf", logits=[[1.0, -INF, -4.0]], temperature=0.25),
    case(13006, "signs", "negative logits are divided too", logits=[[-3.0, 0.0, 3.0]], temperature=1.5),
    acceptable(13007, "zero", "the limit T → 0 (greedy); upstream divides by zero; a refusal will do",
               [{"out": np.array([[INF, INF, INF]])}, {"out": np.array([[INF, INF, -INF]])}], True,
               logits=[[2.0, 1.0, -0.5]], temperature=0.0),
    acceptable(13008, "infinite", "the limit T → ∞: uniform", [], True, logits=[[2.0, 1.0, 0.5]], temperature=INF),
    invalid(13009, "negative", "turns the order round", logits=CHAPTER, temperature=-1.0),
    invalid(13010, "nan", "no number", logits=CHAPTER, temperature=float("nan")),
]  # fmt: skip

PENALTY = [
    case(14001, "signs", "positive logits are divided, negative ones multiplied (upstream PR #720)",
         logits=[[2.0, -2.0, 1.0]], input_ids=[[0, 1]], penalty=1.5),
    case(14002, "zero_logit", "0 does not move", logits=[[0.0, 3.0, -1.0]], input_ids=[[0]], penalty=2.0),
    case(14003, "masked_logit", "−inf stays −inf", logits=[[-INF, 3.0, -1.0]], input_ids=[[0, 1]], penalty=2.0),
    case(14004, "repeated_ids", "an id counts once, however often it stands there", logits=[[4.0, -4.0, 1.0]],
         input_ids=[[0, 0, 0, 1, 1]], penalty=2.0),
    case(14005, "off", "1 changes nothing", logits=[[2.0, -2.0, 1.0]], input_ids=[[0, 1]], penalty=1.0),
    case(14006, "below_one", "favours repetition", logits=[[2.0, -2.0, 1.0]], input_ids=[[0, 1]], penalty=0.5),
    case(14007, "rows", "each row has its own ids", logits=[[2.0, -2.0, 1.0, 3.0], [2.0, -2.0, 1.0, 3.0]],
         input_ids=[[0, 3], [1, 2]], penalty=1.25),
    case(14008, "pad_id", "pads are ids like others: id 0 of the prompt's pads is penalised",
         logits=[[3.0, 2.0, 1.0, -1.0]], input_ids=[[0, 0, 3]], penalty=2.0),
    case(14009, "all_seen", "every id has occurred", logits=[[3.0, -0.5, 0.125]], input_ids=[[2, 1, 0]], penalty=1.5),
    case(14010, "nothing_seen", "no ids at all", logits=[[3.0, -0.5, 0.125]], input_ids=np.zeros((1, 0), np.int64),
         penalty=1.5),
    case(14011, "wide.v16", "sixteen logits", logits=grid(14011, 2, 16), input_ids=[[1, 5, 5, 15], [0, 7, 8, 8]],
         penalty=1.125),
    case(14012, "probability_rises", "the second logit falls, its probability rises", logits=[[2.0, 1.0]],
         input_ids=[[0, 1]], penalty=2.0),
    invalid(14013, "zero", "divides by zero", logits=CHAPTER, input_ids=[[0]], penalty=0.0),
    invalid(14014, "id_past_vocabulary", "there is no logit 3", logits=CHAPTER, input_ids=[[3]], penalty=1.5),
    invalid(14015, "negative_id", "−1 is no id (and not the last one)", logits=CHAPTER, input_ids=[[-1]], penalty=1.5),
]  # fmt: skip

THRESHOLD = [
    case(15001, "chapter", "chapter 10.5: the third greatest", logits=SIX, k=3),
    case(15002, "greatest", "k = 1", logits=SIX, k=1),
    case(15003, "smallest", "k = V", logits=SIX, k=6),
    case(15004, "ties", "ties count one by one", logits=[[1.0, 2.0, 2.0, 2.0]], k=2),
    case(15005, "rows", "each row its own", logits=grid(15005, 3, 8), k=4),
    case(15006, "masked", "fewer than k are left", logits=[[1.0, -INF, -INF, 0.5]], k=3),
    invalid(15007, "zero", "there is no 0-th greatest", logits=SIX, k=0),
]

TOP_K = [
    case(16001, "chapter", "chapter 10.5: 5, 4, 3 stay", logits=SIX, k=3),
    case(16002, "ties", "all that equal the k-th stay: three of k = 2", logits=[[1.0, 2.0, 2.0, 2.0]], k=2),
    case(16003, "off", "0 is off", logits=SIX, k=0),
    case(16004, "everything", "k = V", logits=SIX, k=6),
    case(16005, "one", "k = 1 is greedy", logits=SIX, k=1),
    case(16006, "all_equal", "k = 1 and four equal logits: all stay", logits=[[0.5] * 4], k=1),
    case(16007, "rows", "each row its own threshold", logits=grid(16007, 3, 8), k=3),
    case(16008, "masked", "−inf among the greatest k", logits=[[1.0, -INF, -INF, 0.5]], k=3),
    case(16009, "negative_logits", "the greatest, not the greatest in size", logits=[[-5.0, -1.0, -3.0, -2.0]], k=2),
    case(16010, "half_grid.v32", "logits of a float16 model: ties at k are normal", k=8,
         logits=grid(16010, 2, 32, step=0.5, span=6)),
    acceptable(16011, "more_than_there_are", "k > V keeps everything, as HF; upstream raises", [], True, k=9,
               logits=SIX),
    acceptable(16012, "none", "None is off; upstream raises", [], True, logits=SIX, k=None),
    invalid(16013, "negative", "no count", logits=SIX, k=-1),
]  # fmt: skip

FIVE = log([[0.5, 0.3, 0.15, 0.04, 0.01]])
MIXED = log([[0.15, 0.5, 0.04, 0.3, 0.01]])
TIES_AT_EDGE = [[0.0, 2.0, 0.0, 0.0]]  # .711, then three of .096


def kept(*rows):
    """Alternatives: of TIES_AT_EDGE, which ids stay."""
    return [{"out": np.where(np.isin(np.arange(4), ids), TIES_AT_EDGE, -INF)} for ids in rows]


NUCLEUS_CASES = [
    ("chapter", "chapter 10.6: .5 .8 .95 .99 1, the one that crosses .85 stays", FIVE, 0.85),
    ("unsorted", "the same in another order: the mask goes back to the places of the ids", MIXED, 0.85),
    ("exact_hit", "the sum hits .5 exactly: one more stays than in HF", [[0.0, 0.0, -INF, -INF]], 0.5),
    ("exact_hit_of_ties", "a quarter each, p = .75: the fourth stays too", [[1.0] * 4], 0.75),
    ("first_crosses", "the most likely alone exceeds p, and stays", log([[0.1, 0.8, 0.1]]), 0.5),
    ("zero", "p = 0 keeps one", FIVE, 0.0),
    ("after_top_k", "−inf from top-k: the probabilities are those of the rest", [[3.0, -INF, 2.0, -INF, 1.0]], 0.75),
    ("rows", "each row its own nucleus", grid(17008, 3, 8), 0.7),
    ("nearly_all", "p just below 1", FIVE, 0.999),
    ("wide.v64", "bell-shaped logits", normal(17010, 1, 64, scale=2.0), 0.85),
]
TOP_P_MASK = [case(17001 + i, name, text, logits=x, p=p) for i, (name, text, x, p) in enumerate(NUCLEUS_CASES)]
TOP_P = [case(18001 + i, name, text, logits=x, p=p) for i, (name, text, x, p) in enumerate(NUCLEUS_CASES)] + [
    case(18011, "off", "p = 1 keeps everything", logits=FIVE, p=1.0),
    acceptable(18012, "none", "None is off", [], True, logits=FIVE, p=None),
    acceptable(18013, "ties_at_edge", ".711 + .096 crosses .75 with one of three equals: which one is free "
               "(torch.sort is not stable); ours takes the lowest id", kept([1, 2], [1, 3]), p=0.75,
               logits=TIES_AT_EDGE),
    case(18014, "ties_inside", "all three equals are inside", logits=TIES_AT_EDGE, p=0.95),
    invalid(18015, "negative", "no probability", logits=FIVE, p=-0.5),
]  # fmt: skip

GREEDY = [
    case(19001, "rows", "one id a row", logits=[[0.0, 3.0, 2.0], [5.0, -1.0, 2.0]]),
    case(19002, "tie", "of equals, the lowest id", logits=[[0.0, 3.0, 3.0, 3.0]]),
    case(19003, "negative", "all below zero", logits=[[-3.0, -1.0, -2.0]]),
    case(19004, "masked", "−inf never wins", logits=[[-INF, -1e30, -INF]]),
    case(19005, "last", "the last id", logits=[[0.0, 1.0, 2.0, 2.5]]),
    case(19006, "close", "apart by one unit in float32's last place", logits=[[1.0, 1.0 + 2.0**-23]]),
]

QUARTERS = [[0.25, 0.0, 0.75]]
SUM_BELOW_ONE = floats([[0.3, 0.2, 0.4999999]])
MULTINOMIAL = [
    case(20001, "u_zero", "u = 0: the first id that has any probability", probs=[[0.0, 0.0, 0.5, 0.5]], u=[0.0]),
    case(20002, "u_next_to_one", "u = 1 − 2^-53: the last id that has any", u=[LAST_DOUBLE],
         probs=[[0.5, 0.25, 0.25, 0.0]]),
    case(20003, "on_an_edge", "u equal to a cumulative sum: the next id", probs=QUARTERS, u=[0.25]),
    case(20004, "below_an_edge", "just below it", probs=QUARTERS, u=[0.25 - 2.0**-54]),
    case(20005, "zero_in_the_middle", "id 1 has probability 0: never", probs=[[0.5, 0.0, 0.5]], u=[0.5]),
    case(20006, "rows", "one number a row", probs=[[0.25, 0.25, 0.5]] * 4, u=[0.125, 0.25, 0.49, 0.51]),
    case(20007, "not_normalised", "the sum is 8: u · total", probs=[[1.0, 2.0, 5.0]], u=[0.3751]),
    case(20008, "sum_below_one", "float32's softmax often sums to less than one: the last id, not none",
         probs=SUM_BELOW_ONE, u=[0.9999999999]),
    case(20009, "single", "one id", probs=[[1.0]], u=[0.7]),
    case(20010, "certain", "one id has everything", probs=[[0.0, 0.0, 1.0, 0.0]], u=[0.999]),
    case(20011, "ascending", "in id order, not sorted by probability", probs=[[0.125, 0.5, 0.125, 0.25]], u=[0.7]),
    case(20012, "double_sum.v100", "equal probabilities: float32 sums drift past the edge",
         probs=np.full((1, 100), float(np.float32(0.01))), u=[0.59999999]),
    case(20013, "tiny_probability", "2^-40 is enough at u = 0", probs=[[2.0**-40, 1.0 - 2.0**-20]], u=[0.0]),
    invalid(20014, "all_zero", "nothing to draw", probs=[[0.0, 0.0]], u=[0.5]),
    invalid(20015, "u_one", "u lies in [0, 1)", probs=QUARTERS, u=[1.0]),
    invalid(20016, "negative_probability", "no probability", probs=[[0.5, -0.5, 1.0]], u=[0.5]),
]  # fmt: skip

SUITES = [
    Suite("apply_temperature", "chapter 10.4", TEMPERATURE),
    Suite("apply_repetition_penalty", "chapter 10.7; Keskar et al. 2019, CTRL", PENALTY),
    Suite("top_k_threshold", "chapter 10.5", THRESHOLD),
    Suite("apply_top_k", "chapter 10.5; Fan et al. 2018", TOP_K),
    Suite("top_p_mask", "chapter 10.6, steps 1-4", TOP_P_MASK),
    Suite("apply_top_p", "chapter 10.6; Holtzman et al. 2019", TOP_P),
    Suite("greedy", "chapter 10.8", GREEDY),
    Suite("multinomial", "inversion of the cumulative distribution", MULTINOMIAL),
]
