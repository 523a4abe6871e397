"""What will be trained on, counted before the first step: data.json and the printed summary."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from minibert.console import Console
from minibert.corpus.batches import A_LENGTH, B_LENGTH, IS_RANDOM, Collator, Cursor, ExampleStream
from minibert.corpus.store import TokenStore
from minibert.tokenization.tokenizer import BertTokenizer

LOOKED_AT = 8192  # examples that the shares are measured on
IS_NEXT_RANGE = (0.4, 0.6)  # outside of it the next-sentence task says little


def describe(
    store: TokenStore, stream: ExampleStream, collator: Collator, tokenizer: BertTokenizer, held_out: np.ndarray
) -> dict[str, Any]:
    """Counts of the corpus, shares measured on the first batches, three examples in words, and what is doubtful."""
    facts = store.facts
    rows, shares = measure(stream, collator)
    found: dict[str, Any] = {
        "documents": facts["documents"],
        "held_out_documents": len(held_out),
        "sentences": facts["sentences"],
        "tokens": facts["tokens"],
        "characters": facts["characters"],
        "vocabulary": len(tokenizer),
        "unknown_rate": facts["unknown_tokens"] / facts["tokens"],
        "is_next_share": shares["is_next_share"],
        "one_sentence_documents": facts["one_sentence_documents"],
        "mean_example_length": shares["mean_example_length"],
        "padding_share": shares["padding_share"],
        "skipped": {
            "records without text": facts.get("records_without_text", 0),
            "documents without a token": facts["empty_documents"],
            "lines without a token": facts["empty_lines"],
        },
        "records_without_text": facts.get("first_without_text", []),
        "examples": [in_words(collator, tokenizer, row) for row in rows[:3]],
    }
    found["warnings"] = warnings(found)
    return found


def measure(stream: ExampleStream, collator: Collator) -> tuple[np.ndarray, dict[str, Any]]:
    """The rows of the first batches, and is_next_share (None without pairs), mean_example_length and padding_share."""
    batches = [rows for rows, _ in islice(stream.batches(Cursor()), max(1, LOOKED_AT // stream.batch_size))]
    rows = np.concatenate(batches)
    computed = sum(
        len(batch) * collator.batch_length(int((batch[:, A_LENGTH] + batch[:, B_LENGTH]).max()) + 2 + stream.nsp)
        for batch in batches
    )
    lengths = rows[:, A_LENGTH] + rows[:, B_LENGTH] + 2 + (rows[:, B_LENGTH] > 0)
    paired = rows[rows[:, IS_RANDOM] >= 0]
    return rows, {
        "is_next_share": float((paired[:, IS_RANDOM] == 0).mean()) if len(paired) else None,
        "mean_example_length": float(lengths.mean()),
        "padding_share": max(0.0, 1 - float(lengths.sum()) / computed),
    }


def warnings(found: dict[str, Any]) -> list[str]:
    """What a person should know before hours of training."""
    out = []
    share = found["is_next_share"]
    if share is not None and not IS_NEXT_RANGE[0] <= share <= IS_NEXT_RANGE[1]:
        out.append(
            f"IsNext share is {share:.0%}, far from 50%: {found['one_sentence_documents']:,} of "
            f"{found['documents']:,} documents have one sentence, and those can only be followed by a random one; "
            "a blank line ends a document. --no-nsp trains without sentence pairs"
        )
    if found["unknown_rate"] > 0.01:
        out.append(
            f"{found['unknown_rate']:.1%} of the tokens are [UNK], unknown to the vocabulary; "
            "a larger --vocab-size or another --tokenizer knows more"
        )
    if not found["held_out_documents"]:
        out.append(
            f"no document is held out of {found['documents']:,}: nothing will be measured on unseen text. That "
            "takes 20 documents or more that differ (a blank line ends one), and an --eval-share above 0"
        )
    for what, count in found["skipped"].items():
        if count:
            first = found["records_without_text"][:1] if what == "records without text" else []
            more = f"; the first: {first[0]} (data.json lists them)" if first else ""
            out.append(f"{count:,} {what} left out{more}")
    return out


def in_words(collator: Collator, tokenizer: BertTokenizer, row: np.ndarray) -> dict[str, Any]:
    """One example as the model will see it: its tokens with the masks, what is hidden, and whether B follows A."""
    batch = collator[row[None]]
    length = batch["num_tokens"]
    tokens = tokenizer.convert_ids_to_tokens(batch["input_ids"][0, :length].tolist())
    answers = tokenizer.convert_ids_to_tokens(batch["labels"][batch["labels"] >= 0].tolist())
    label = int(batch["next_sentence_label"][0])
    return {
        "input": " ".join(tokens),
        "to_predict": " ".join(answers),
        "next_sentence": {0: "IsNext", 1: "random"}.get(label),
    }


def show_data(found: dict[str, Any], console: Console) -> None:
    """The summary for people: counts, shares, warnings, and the examples with their masks."""
    share = found["is_next_share"]
    rows = [
        ("documents", f"{found['documents']:,}, {found['held_out_documents']:,} of them held out"),
        ("sentences", f"{found['sentences']:,}"),
        ("tokens", f"{found['tokens']:,}, {found['unknown_rate']:.2%} unknown"),
        ("sentence pairs", "none" if share is None else f"{share:.1%} follow each other (IsNext)"),
        ("an example", f"{found['mean_example_length']:.0f} tokens on average, {found['padding_share']:.1%} padding"),
    ]
    console.table("data", rows)
    for number, example in enumerate(found["examples"], 1):
        relation = f"  (next sentence: {example['next_sentence']})" if example["next_sentence"] else ""
        console.say(f"  example {number}: {example['input']}")
        console.say(f"    to predict: {example['to_predict']}{relation}")
    for warning in found["warnings"]:
        console.warn(warning)
