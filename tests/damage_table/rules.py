"""The rules of the table: what must hold between the truth and what commands say, whatever the damage is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.damage_table.case import Case
from tests.damage_table.commands import READERS, Answer
from tests.damage_table.kinds import Seen
from tests.damage_table.truth import Fate, Key

_PAST_DAMAGE = ("cat skip", "read skip")
# Commands that give the assessment's verdict.
_WITH_VERDICT = ("doctor", "doctor --deep", "verify", "info", "repair")


def quick_damage_is_seen(case: Case) -> Iterator[str]:
    """What names, sizes and ends show, every check reports with its exit code; a deep look no less than a quick one."""
    for name in ("doctor", "doctor --deep", "info", "verify"):
        if case.kind.seen is Seen.QUICK and not _opening_mends(case) and not case.looks[name].exit_code:
            yield f"{name} ends with 0"
    quick, deep = case.looks["doctor"], case.looks["doctor --deep"]
    if quick.exit_code and not deep.exit_code and not _opening_mends(case):
        yield "doctor ends with 1, and doctor --deep with 0"


def _opening_mends(case: Case) -> bool:
    """Whether the damage is to what a crash may leave unwritten, or a broker may not have: any opening mends it."""
    assert case.opened is not None
    derived = case.kind.name.startswith(("queue:", "index:"))
    without_mark = case.aborted or case.store == "rocketmq"
    return derived and without_mark and not case.found - case.opened.after.delivered.keys()


def repair_ends_with_0_only_if_opening_loses_nothing(case: Case) -> Iterator[str]:
    """Or it says that opening does not read everything, and which command does."""
    assert case.opened is not None
    said = case.looks["repair"]
    if said.exit_code or ("doctor --deep" in said.text and "nothing is lost" not in said.text):
        return
    if case.truth.lost:
        yield f"{len(case.truth.lost)} messages are lost"
    if left := case.found - case.opened.after.delivered.keys():
        yield f"after opening {len(left)} whole messages are not read"


def a_store_has_a_verdict(case: Case) -> Iterator[str]:
    """Whatever the damage is: exit code 2 is for a path that is not a store."""
    yield from (
        f"{name} ends with 2: {case.looks[name].text}" for name in _WITH_VERDICT if case.looks[name].exit_code == 2
    )
    if "DOES NOT OPEN" in (case.looks["doctor --deep"].facts.get("verdict"), case.looks["info"].facts.get("verdict")):
        yield from (
            f"{name} does not say DOES NOT OPEN, as others do"
            for name in ("doctor --deep", "verify")
            if case.looks[name].facts.get("verdict") not in ("DOES NOT OPEN", None)
        )


def deep_damage_is_seen(case: Case) -> Iterator[str]:
    for name in ("doctor --deep", "verify"):
        if case.kind.seen is Seen.DEEP and not _opening_mends(case) and not case.looks[name].exit_code:
            yield f"{name} ends with 0"


def nothing_wrong_is_nothing_reported(case: Case) -> Iterator[str]:
    if case.kind.seen is Seen.NOTHING_WRONG:
        yield from (
            f"{name} ends with {one.exit_code}: {one.text}" for name, one in case.looks.items() if one.exit_code
        )


def one_count(case: Case) -> Iterator[str]:
    """Found and lost messages are the same everywhere, and all of them; an opening that cuts loses more."""
    if case.unreadable_files:  # their messages count as lost until they may be read; a salvage names the file
        counts = [(case.looks[name].found, case.looks[name].lost) for name in ("doctor --deep", "verify")]
        everything = len(case.truth.found) + len(case.truth.lost)
        if any(None in one or sum(filter(None, one)) != everything for one in counts) or counts[0] != counts[1]:
            yield f"doctor --deep and verify count {counts} of {everything}"
        return
    assert case.salvaged is not None
    found, lost, misplaced = len(case.truth.found), len(case.truth.lost), len(case.truth.misplaced)
    cut = case.looks["repair"].facts["messages"] if case.looks["repair"].facts["opens"] else 0
    of_opening = (found - len(_cut(case)), lost + cut)
    wanted = {"verify": of_opening, "doctor --deep": of_opening, "salvage": (found + misplaced, lost - misplaced)}
    wanted["salvage --to"] = wanted["salvage"]
    said = {name: case.looks[name] for name in ("doctor --deep", "verify", "salvage")} | {
        "salvage --to": case.salvaged[0]
    }
    for name, answer in said.items():
        if answer.exit_code != 2 and (answer.found, answer.lost) != wanted[name]:
            yield f"{name} says {answer.found} found, {answer.lost} lost, not {wanted[name]}"
    for name in ("doctor --deep", "verify"):
        named = _lost_offsets(case.looks[name])
        if named - _cut(case) != case.truth.lost:
            yield f"{name} names other offsets"
        if case.truth.misplaced - _offsets(case.looks[name], "unreadableOffsets"):
            yield f"{name} does not call misplaced messages unreadable"
    if quick := _lost_offsets(case.looks["doctor"]) - case.truth.lost:
        yield f"doctor says that {len(quick)} messages are lost that are not"


def every_loss_is_an_exit_code(case: Case) -> Iterator[str]:
    for name in ("doctor --deep", "verify", "salvage"):
        if case.truth.lost and not case.looks[name].exit_code:
            yield f"{name} ends with 0"


def readers_deliver_what_was_put(case: Case) -> Iterator[str]:
    """Bytes that were not put come with an error only; and who ends with 0 has delivered everything."""
    for name in READERS if case.reads_matter else ():
        answer = case.looks[name]
        wrong = [key for key, body in answer.delivered.items() if case.bodies.get(key) != body]
        if wrong and not answer.exit_code:
            yield f"{name} delivers {len(wrong)} changed messages and ends with 0"
        missing = case.user.keys() - case.truth.of(Fate.EXPIRED) - answer.delivered.keys()
        missing -= _after_the_log(case) if name == "cat from log" else case.hidden
        if missing and not answer.exit_code:
            yield f"{name} leaves out {len(missing)} messages and ends with 0"


def past_damage_all_the_rest_is_read(case: Case) -> Iterator[str]:
    if case.unreadable_files or not case.reads_matter or case.kind.name == "log: a directory in the place of a file":
        return  # a directory is refused by name
    for name in _PAST_DAMAGE:
        if missing := case.readable - case.looks[name].delivered.keys():
            yield f"{name} leaves out {len(missing)} whole messages"
    if case.found - case.looks["cat from log"].delivered.keys():
        yield "cat from log leaves out whole messages"


def get_refuses_what_is_damaged(case: Case) -> Iterator[str]:
    for key, answer in case.gets.items():
        if case.unreadable_files:
            continue
        if key in case.found and answer.delivered.get(key) != case.user[key]:
            yield f"get does not find {key}: {answer.text}"
        wrong = any(body != case.bodies[key] for body in answer.delivered.values())
        if key not in case.found and wrong and not answer.exit_code:
            yield f"get delivers {key}"


def opening_does_what_repair_says(case: Case) -> Iterator[str]:
    opened, said = case.opened, case.looks["repair"].facts
    assert opened is not None
    opens = said.get("opens", False)
    if opens != (not opened.refused):
        yield f"repair says opens: {opens}, opening: {opened.refused or 'opens'}"
    if opens and (said["messages"], said["cutAt"]) != (opened.cut, opened.cut_at):
        yield f"repair says a cut of {said['messages']} at {said['cutAt']}, opening cut {opened.cut} at {opened.cut_at}"


def nothing_lost_is_found_later(case: Case) -> Iterator[str]:
    assert case.opened is not None
    lost = _lost_offsets(case.looks["verify"]) - _cut(case)
    cut = case.looks["repair"].facts.get("messages", 0)
    for name, answer in case.looks.items():
        if name in READERS and not cut and (found := _right(case, answer) & lost):
            yield f"{name} delivers {len(found)} messages that verify calls lost"
    if not cut and case.opened.after.delivered.keys() & lost:
        yield "after opening messages are read that verify calls lost"


def salvage_saves_all_that_is_whole(case: Case) -> Iterator[str]:
    assert case.salvaged is not None
    said, after = case.salvaged
    if case.unreadable_files or said.exit_code == 2:
        if case.found and not case.unreadable_files:
            yield f"salvage fails: {said.text}"
        return
    saved = sorted(after.delivered.values())
    whole = case.found | (case.truth.misplaced & case.user.keys())
    if saved != sorted(case.user[key] for key in whole):
        yield f"{len(saved)} messages in the salvaged store, {len(whole)} are whole"


def suggested_commands_work(case: Case) -> Iterator[str]:
    """Each command that is suggested does what it is for: what is read after it is all that is whole."""
    for step in case.steps:
        if step.exit_code == 2 and not case.unreadable_files:
            yield f"{step.command}: exit code 2, {step.text}"
        if step.after is not None and step.after.exit_code:
            yield f"{step.command}: {step.text} {step.after.text}"


def what_is_wrong_has_a_next_step(case: Case) -> Iterator[str]:
    """Where ``doctor --deep`` finds something, it says what to do; and doing it leaves everything that is whole."""
    deep = case.looks["doctor --deep"]
    files = [one["check"] for one in deep.facts.get("findings", []) if one["severity"] == "error"]
    if (
        files
        and not all(check.startswith(("config.", "batch.")) for check in files)
        and not (case.unreadable_files or case.steps)
    ):
        yield "doctor --deep suggests nothing"


def looking_changes_nothing(case: Case) -> Iterator[str]:
    if case.changed_by_looking:
        yield "a file has changed"


def _lost_offsets(answer: Answer) -> set[Key]:
    return _offsets(answer, "lostOffsets")


def _offsets(answer: Answer, name: str) -> set[Key]:
    return {
        Key(topic["topic"], one["queueId"], at)
        for topic in answer.facts.get("topics", [])
        for one in topic[name]
        for at in range(one["start"], one["stop"])
    }


def _after_the_log(case: Case) -> set[Key]:
    """Lost messages after the last whole one of their queue: the log alone does not say that they were."""
    ends: dict[tuple[str, int], int] = {}
    for key in case.truth.found:
        ends[key.topic, key.queue_id] = max(key.queue_offset, ends.get((key.topic, key.queue_id), -1))
    return {key for key in case.truth.fates if key.queue_offset > ends.get((key.topic, key.queue_id), -1)}


def _cut(case: Case) -> set[Key]:
    """The messages that an opening cuts off, as ``repair`` names them."""
    said = case.looks["repair"].facts
    if not said.get("opens"):
        return set()
    return {Key(one["topic"], one["queueId"], at) for one in said["lost"] for at in range(one["start"], one["stop"])}


def _right(case: Case, answer: Answer) -> set[Key]:
    return {key for key, body in answer.delivered.items() if case.bodies.get(key) == body}


RULES: tuple[Callable[[Case], Iterator[str]], ...] = (
    quick_damage_is_seen,
    repair_ends_with_0_only_if_opening_loses_nothing,
    deep_damage_is_seen,
    a_store_has_a_verdict,
    nothing_wrong_is_nothing_reported,
    one_count,
    every_loss_is_an_exit_code,
    readers_deliver_what_was_put,
    past_damage_all_the_rest_is_read,
    get_refuses_what_is_damaged,
    opening_does_what_repair_says,
    nothing_lost_is_found_later,
    salvage_saves_all_that_is_whole,
    suggested_commands_work,
    what_is_wrong_has_a_next_step,
    looking_changes_nothing,
)


def broken(case: Case) -> dict[str, list[str]]:
    """The rules that the case breaks, each with what is wrong."""
    found = {rule.__name__: list(rule(case)) for rule in RULES}
    return {name: problems for name, problems in found.items() if problems}
