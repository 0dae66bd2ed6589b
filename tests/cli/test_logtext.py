"""Logs are bytes of a stranger: all of them are shown, and none of them acts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.cli.logtext import MOST_HELD_CHARS, LogText, neutral


def read(*chunks: bytes, colours: bool = False) -> str:
    """Read a log that comes in these chunks."""
    text = LogText(colours=colours)
    return "".join(map(text.feed, chunks)) + text.feed(b"", final=True)


def test_one_bad_byte_hides_nothing():
    """A byte that is no UTF-8 becomes a replacement mark, and the rest is shown (hail-is/hail#12614)."""
    assert read(b"hi\n\x80end\n") == "hi\n\ufffdend\n"


def test_a_cut_character_waits_for_its_rest():
    """A file that ends within a character shows it once it is complete (Nukesor/pueue#41)."""
    text = LogText()

    assert text.feed(b"\xe2\x96") == ""
    assert text.unfinished == ""
    assert text.feed(b"\x88\n") == "█\n"


def test_a_cut_character_at_the_very_end_is_marked():
    """When nothing more comes, what is left of a character is a replacement mark (Nukesor/pueue#41)."""
    assert read(b"50% \xe2\x96") == "50% \ufffd"


def test_zero_bytes_are_shown():
    """A NUL is neither dropped nor sent to the terminal."""
    assert read(b"a\0b\n") == "a\u2400b\n"


def test_a_megabyte_without_a_line_end_is_shown():
    """A job that ends no line is shown in parts, whole, and in bounded memory."""
    text = LogText()
    chunks = [b"x" * 4096] * 256

    shown = [text.feed(chunk) for chunk in chunks]

    assert len(text._held) <= MOST_HELD_CHARS
    assert "".join(shown) + text.feed(b"", final=True) == "x" * (1 << 20)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"10%\r20%\r30%\ndone\n", "30%\ndone\n"),
        (b"10%\r20%\r", "20%"),
        (b"windows\r\nlines\r\n", "windows\nlines\n"),
        (b"\r\r\n", "\n"),
        (b"10%\r20%", "20%"),
    ],
)
def test_a_progress_bar_is_shown_as_it_last_stood(data, shown):
    """What was written over is not shown again, and no carriage return is left."""
    assert read(data) == shown


def test_the_unfinished_line_can_be_seen():
    """Whoever follows sees the progress bar move before its line ends."""
    text = LogText()
    text.feed(b"10%\r20%\r")

    assert text.unfinished == "20%"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]52;c;ZXZpbA==\x1b\\text", "text"),
        ("\x1bP+q544e\x1b\\text", "text"),
        ("\x9b2Jtext", "text"),
        ("\x1b(0text", "text"),
        ("\x1bctext", "text"),
        ("bell\x07 back\x08", "bell\u2407 back\u2408"),
        ("\x1b", "\u241b"),
        ("tab\tstays", "tab\tstays"),
        ("\x85", "\\x85"),
        ("\x1b[31mred\x1b[0m", "red"),
    ],
)
def test_nothing_in_a_log_steers_the_terminal(data, shown):
    """Titles, clipboards, cursors and bells are taken away or shown as signs."""
    assert neutral(data, colours=False) == shown


def test_colours_stay_where_they_are_wanted_and_end_with_the_line():
    """A colour that a job forgot to end does not run into the prompt."""
    assert read(b"\x1b[1;31mred\x1b[2K\n", colours=True) == "\x1b[1;31mred\x1b[0m\n"


@given(st.lists(st.binary(max_size=30), max_size=8), st.booleans())
def test_however_it_is_cut_the_text_is_the_same_and_harmless(chunks, colours):
    """Chunks end anywhere; the lines do not depend on it, and no control but tab and line end is left."""
    whole = read(b"".join(chunks), colours=colours)

    assert read(*chunks, colours=colours) == whole
    rest = whole.replace("\t", "").replace("\n", "")
    if not colours:
        assert not [char for char in rest if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0]
