# SPDX-License-Identifier: Apache-2.0
"""Events: complete, in order, resumable, and never held up by those who do not read."""

import threading
import time

import pytest
from hutch.v1 import event_pb2, sandbox_pb2
from hutchd import LIMIT, Client, Watch, refused, sandbox_state, state_name, wait_until

import grpc

TYPES = event_pb2.EventType


def names(events) -> list[str]:
    return [TYPES.Name(event.type).removeprefix("EVENT_TYPE_") for event in events]


@pytest.mark.rules("EVENT-002", "EVENT-007")
def test_the_life_of_a_sandbox_and_its_execs_in_events(daemon):
    watch = daemon.watch()
    sandbox_id = daemon.ready(labels={"a": "b"})
    exec_id = daemon.run(sandbox_id, "false").exec.id
    daemon.update(sandbox_id, "labels", labels={"c": "d"})
    daemon.remove(sandbox_id)
    events = watch.until_state("DELETED")
    watch.close()
    assert {event.sandbox_id for event in events} == {sandbox_id}
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    created = "SANDBOX_CREATED", "SANDBOX_STATE_CHANGED"
    execs = "EXEC_CREATED", "EXEC_STATE_CHANGED", "EXEC_STATE_CHANGED"
    assert names(events) == [*created, *execs, "SANDBOX_UPDATED", "SANDBOX_STATE_CHANGED", "SANDBOX_STATE_CHANGED"]
    assert events[0].actor == "uid:0" and events[0].time.seconds
    assert events[4].exec_state.exec_id == exec_id and events[4].exec_state.result.exit_code == 1
    assert dict(events[5].sandbox_update.labels) == {"c": "d"}
    assert list(events[5].sandbox_update.fields) == ["labels"]
    assert events == daemon.history(sandbox_id)


@pytest.mark.rules("EVENT-007")
def test_events_show_no_arguments_and_no_environment(daemon):
    sandbox_id = daemon.ready(env={"A": "hidden-env"})
    daemon.run(sandbox_id, "echo", "hidden-argument", env={"B": "hidden-env"})
    assert "hidden" not in str(daemon.history(sandbox_id))
    daemon.remove(sandbox_id)
    assert "hidden" not in daemon.log()


@pytest.mark.rules("EVENT-007")
def test_the_trace_of_a_request_is_in_its_events(daemon):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    metadata = (("traceparent", trace), ("tracestate", "a=b"))
    answer = daemon.sandboxes.CreateSandbox(sandbox_pb2.CreateSandboxRequest(), timeout=LIMIT, metadata=metadata)
    daemon.wait(answer.sandbox.id, "READY")
    event = daemon.history(answer.sandbox.id)[0]
    assert (event.traceparent, event.tracestate) == (trace, "a=b")
    daemon.remove(answer.sandbox.id)


@pytest.mark.rules("EVENT-002", "EVENT-003")
def test_a_watcher_resumes_from_any_cursor_without_loss_or_doubles(own_daemon):
    for _ in range(3):
        own_daemon.run(own_daemon.ready(), "true")
    own_daemon.restart(kill=True)
    watch = own_daemon.watch(after_cursor=0)
    count = sum(sandbox.sequence for sandbox in own_daemon.all())
    events = [watch.next() for _ in range(count)]
    watch.close()
    cursors = [event.cursor for event in events]
    assert cursors == sorted(set(cursors))
    for place, cursor in enumerate(cursors[:-1]):
        watch = own_daemon.watch(after_cursor=cursor)
        assert [watch.next() for _ in range(count - place - 1)] == events[place + 1 :]
        watch.close()


@pytest.mark.rules("EVENT-001", "EVENT-003")
def test_a_watch_across_a_restart_loses_nothing(own_daemon):
    watch = own_daemon.watch()
    sandbox_id = own_daemon.ready()
    exec_id = own_daemon.start(sandbox_id, "sleep", "0.3").id
    seen = [watch.next() for _ in range(2)]
    own_daemon.kill()
    time.sleep(0.5)
    own_daemon.begin()
    own_daemon.wait_exec(sandbox_id, exec_id, "EXITED")
    own_daemon.remove(sandbox_id)
    watch = own_daemon.watch(after_cursor=seen[-1].cursor)
    seen += watch.until_state("DELETED")
    watch.close()
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
    assert seen == own_daemon.history(sandbox_id)


@pytest.mark.rules("EVENT-004")
def test_a_snapshot_then_what_follows_it(daemon):
    labels = {"of": "snapshot"}
    one, two = daemon.ready(labels=labels), daemon.ready(labels=labels)
    watch = daemon.watch(include_snapshot=True, selector="of=snapshot")
    assert [(sandbox.id, state_name(sandbox)) for sandbox in watch.snapshot] == [(one, "READY"), (two, "READY")]
    assert watch.snapshot[0] == daemon.get(one)
    daemon.remove(one)
    events = watch.until_state("DELETED")
    assert [event.sequence for event in events] == [watch.snapshot[0].sequence + n for n in (1, 2)]
    assert all(event.cursor > watch.cursor for event in events)
    watch.close()
    daemon.remove(two)


@pytest.mark.rules("EVENT-004")
def test_a_snapshot_taken_during_changes_has_no_gap_and_no_doubles(own_daemon):
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            own_daemon.create()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(10):
            watch = own_daemon.watch(include_snapshot=True)
            sequences = {sandbox.id: sandbox.sequence for sandbox in watch.snapshot}
            for _ in range(20):
                event = watch.next()
                assert event.sequence == sequences.get(event.sandbox_id, 0) + 1
                sequences[event.sandbox_id] = event.sequence
            watch.close()
    finally:
        stop.set()
        thread.join()


@pytest.mark.rules("EVENT-003")
def test_watching_by_id_selector_and_type(daemon):
    one = daemon.create(labels={"of": "watch-filter"}).id
    watches = [
        daemon.watch(sandbox_ids=[one], after_cursor=0),
        daemon.watch(selector="of=watch-filter", after_cursor=0),
        daemon.watch(sandbox_ids=[one], after_sequence=0),
    ]
    by_type = daemon.watch(types=[TYPES.Value("EVENT_TYPE_SANDBOX_UPDATED")])
    two = daemon.ready()
    daemon.wait(one, "READY")
    daemon.update(one, "labels", labels={"of": "watch-filter"})
    daemon.remove(one)
    seen = [watch.until_state("DELETED") for watch in watches]
    assert seen[0] == seen[1] == seen[2]
    assert [event.sequence for event in seen[0]] == [1, 2, 3, 4, 5]
    assert by_type.next() == seen[0][2]
    for watch in (*watches, by_type):
        watch.close()
    daemon.remove(two)


@pytest.mark.rules("EVENT-009")
def test_a_watch_tells_when_it_has_told_what_was_there(daemon, sandbox):
    def begin(*sandbox_ids: str):
        request = sandbox_pb2.WatchEventsRequest(sandbox_ids=sandbox_ids, after_cursor=0)
        call = daemon.sandboxes.WatchEvents(request, timeout=25)  # after 30 s a quiet watch tells anyway
        return call, [step.WhichOneof("item") for step in (next(call), next(call), next(call))], next(call)

    daemon.update(sandbox, "labels", labels={"a": "1"})
    told = daemon.history(sandbox)[-1].cursor
    call, items, last = begin(sandbox)
    assert (items, last.event.cursor) == (["started", "event", "event"], told)
    daemon.update(sandbox, "labels", labels={"a": "2"})
    assert next(call).HasField("event")  # there was no need to tell
    call.cancel()

    other = daemon.ready()
    end = daemon.history(other)[-1].cursor
    call, items, last = begin(sandbox)
    assert items == ["started", "event", "event"]
    assert last.event.cursor == told and next(call).HasField("event")
    assert next(call).progress.cursor >= end
    call.cancel()
    daemon.remove(other)


def test_a_watch_after_a_sequence_goes_on_there(daemon, sandbox):
    daemon.run(sandbox, "true")
    events = daemon.history(sandbox)
    for sequence in range(len(events)):
        watch = daemon.watch(sandbox_ids=[sandbox], after_sequence=sequence)
        assert watch.next() == events[sequence]
        watch.close()


@pytest.mark.rules("EVENT-008")
def test_a_selector_goes_by_the_labels_at_the_time_of_the_event(daemon, sandbox):
    watch = daemon.watch(selector="phase=two")
    daemon.update(sandbox, "labels", labels={"phase": "one"})
    daemon.update(sandbox, "labels", labels={"phase": "two"})
    daemon.update(sandbox, "labels", labels={"phase": "three"})
    daemon.update(sandbox, "labels", labels={"phase": "two", "last": ""})
    sequence = daemon.get(sandbox).sequence
    assert [watch.next().sequence for _ in range(2)] == [sequence - 2, sequence]
    watch.close()


@pytest.mark.rules("EVENT-008")
def test_events_of_a_deleted_sandbox_match_by_its_last_labels(daemon):
    sandbox_id = daemon.ready(labels={"last": "label"})
    daemon.remove(sandbox_id)
    watch = daemon.watch(selector="last=label", after_cursor=0)
    assert [event.sequence for event in watch.until_state("DELETED")] == [1, 2, 3, 4]
    watch.close()


@pytest.mark.rules("EVENT-006", "ERR-005")
def test_a_cursor_older_than_what_is_kept_is_gone(start_daemon):
    daemon = start_daemon({"limits": {"history_retention": "50ms"}})
    gone = daemon.ready()
    cursor = daemon.history(gone)[0].cursor
    daemon.remove(gone)

    def is_gone():
        watch = daemon.sandboxes.WatchEvents(sandbox_pb2.WatchEventsRequest(after_cursor=cursor), timeout=1)
        try:
            next(watch)
            watch.cancel()
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.OUT_OF_RANGE
        return False

    wait_until(is_gone)
    with refused("CURSOR_GONE") as error:
        daemon.watch(after_cursor=cursor)
    oldest = int(error.metadata["oldest_cursor"])
    assert oldest > cursor
    watch = daemon.watch(after_cursor=oldest)
    sandbox_id = daemon.create().id
    assert watch.next().sandbox_id == sandbox_id
    watch.close()
    watch = daemon.watch(after_cursor=0)  # from the oldest kept
    assert watch.next().sandbox_id == sandbox_id
    watch.close()


@pytest.mark.rules("EVENT-005", "ERR-005")
def test_a_watcher_that_does_not_read_is_told_that_it_lagged_and_goes_on_from_there(start_daemon):
    """What the client's window does not take waits in the daemon, which keeps 16 events."""
    daemon = start_daemon({"limits": {"watch_buffer": 16}})
    sandbox_id = daemon.ready()
    lazy = Client(daemon.socket, ("grpc.http2.bdp_probe", 0))
    watch = lazy.watch(timeout=3 * LIMIT)
    keen, events = daemon.watch(timeout=3 * LIMIT), []
    labels = {f"{'p' * 60}.{'q' * 60}.{'r' * 60}/label-{n}": "x" * 63 for n in range(60)}
    for n in range(201):
        last = daemon.update(sandbox_id, "labels", labels=labels | {"n": str(n)}).sequence
        events.append(keen.next())
    keen.close()
    assert [event.sequence for event in events] == list(range(last - 200, last + 1))
    seen = []
    with refused("WATCHER_LAGGED") as error:
        while True:
            seen.append(watch.next())
    lazy.close()
    assert seen and int(error.metadata["cursor"]) == seen[-1].cursor
    watch = daemon.watch(after_cursor=seen[-1].cursor)
    seen += watch.until(lambda event: event.sequence == last)
    watch.close()
    assert seen == events


def test_a_thousand_watchers(start_daemon):
    daemon = start_daemon({"limits": {"streams_per_caller": 2000}})
    calls = []
    for _ in range(10):
        client = daemon.client()
        request = sandbox_pb2.WatchEventsRequest()
        calls += [client.sandboxes.WatchEvents(request, timeout=3 * LIMIT) for _ in range(100)]
    watches = [Watch(call) for call in calls]
    sandbox_id = daemon.ready()
    daemon.remove(sandbox_id)
    expected = daemon.history(sandbox_id)
    for watch in watches:
        assert watch.until_state("DELETED") == expected
    for watch in watches:
        watch.close()


@pytest.mark.rules("EVENT-002")
def test_every_watcher_sees_the_same_order(daemon):
    watches = [daemon.watch(selector="of=order") for _ in range(5)]
    ids = [daemon.create(labels={"of": "order"}).id for _ in range(10)]
    for one in ids:
        daemon.wait(one, "READY")
    orders = [[(event.cursor, event.sandbox_id) for event in (watch.next() for _ in range(20))] for watch in watches]
    assert all(order == orders[0] for order in orders)
    for watch in watches:
        watch.close()
    daemon.remove(*ids)


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_watcher_that_goes_away_is_forgotten(own_daemon, how):
    client = own_daemon.client()
    watch = client.watch()
    if how == "cancel":
        watch.close()
    else:
        client.close()
    own_daemon.remove(own_daemon.ready())


@pytest.mark.rules("EVENT-001")
def test_a_state_is_seen_by_watchers_no_later_than_by_readers(daemon):
    """What a reader sees is durable, so the event of it is there."""
    sandbox = daemon.wait(daemon.create().id, "READY")
    watch = daemon.watch(sandbox_ids=[sandbox.id], after_sequence=sandbox.sequence - 1)
    assert watch.next().sandbox_state.to_state == sandbox_state("READY")
    watch.close()
    daemon.remove(sandbox.id)
