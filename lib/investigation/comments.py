"""Append an analyst's comment to a params file; everything else in it stays as written."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from ruamel.yaml.util import load_yaml_guess_indent

from buildcompare.config.errors import InputError
from buildcompare.config.params import read_params
from buildcompare.config.project import read_text, write_files
from buildcompare.config.yaml import MAX_BYTES


def keep_comment(file: Path | None, comment: str) -> int:
    """Append a comment to a params file and return its number, counted from 1.

    The file is read again first, so that edits since the comparison stay.
    """
    text = " ".join(comment.split())
    if not text:
        raise InputError(file=file, key="comments", expected="a comment", found="none")
    if file is None:
        expected = "a comparison that was read from a params file"
        raise InputError(file=None, key="comments", expected=expected, found="a comparison without a file")
    before = read_params(file)
    expected = "a list that can be extended (else add the comment with an editor)"
    by_hand = InputError(file=file, key="comments", expected=expected, found="another layout")
    written = _with_comment(read_text(file, "a YAML file", max_bytes=MAX_BYTES), text)
    if written is None:
        raise by_hand
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / file.name
        trial.write_text(written, "utf-8")
        after = read_params(trial)
    if after.model_dump() != before.model_copy(update={"comments": [*before.comments, text]}).model_dump():
        raise by_hand
    write_files({file: written})
    return len(after.comments)


def _with_comment(text: str, comment: str) -> str | None:
    """Add a comment to the text of a params file; None if ruamel.yaml cannot read it."""
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, MAX_BYTES  # so that no line is folded
    try:
        _, indent, offset = load_yaml_guess_indent(text)
        yaml.indent(mapping=2, sequence=indent or 2, offset=offset or 0)
        data = yaml.load(text)
    except YAMLError:
        return None
    if data.get("comments") is None:
        data["comments"] = []
    data["comments"].append(DoubleQuotedScalarString(comment))
    sink = io.StringIO()
    yaml.dump(data, sink)
    return sink.getvalue()
