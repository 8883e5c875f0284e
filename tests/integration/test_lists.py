# SPDX-License-Identifier: Apache-2.0
"""Lists, updates, owners and quotas."""

import os
import re
import signal

import grpc
import pytest
from hutch.v1 import exec_pb2, sandbox_pb2
from hutchd import LIMIT, MIB, RestingDaemon, refused, sandbox_state, seconds, state_name, wait_until

NOBODY, NOGROUP = 65534, 65534


@pytest.fixture(scope="module", name="listed")
def make_listed(daemon):
    """Ten sandboxes of this file, oldest first."""
    ids = [daemon.create(labels={"of": "lists", "n": str(n), "odd": str(n % 2)}).id for n in range(10)]
    for one in ids:
        daemon.wait(one, "READY")
    yield ids
    daemon.remove(*ids)


@pytest.mark.rules("LIST-001", "LIST-002")
@pytest.mark.parametrize("page_size", [0, 1, 3, 5, 10, 11, 5000])
def test_pages_hold_everything_once_and_in_order(daemon, listed, page_size):
    pages = daemon.pages(selector="of=lists", page_size=page_size)
    assert [sandbox.id for page in pages for sandbox in page.sandboxes] == listed
    if page_size:
        assert all(len(page.sandboxes) <= page_size for page in pages)
        assert len(pages) == max(1, -(-10 // page_size))
    assert pages[-1].next_page_token == ""


@pytest.mark.rules("LIST-001")
def test_what_exists_throughout_a_listing_is_in_it_once(daemon, listed):
    request = sandbox_pb2.ListSandboxesRequest(selector="of in (lists,other)", page_size=3)
    found = []
    passing = daemon.create(labels={"of": "other"}).id
    while not found or request.page_token:
        page = daemon.sandboxes.ListSandboxes(request, timeout=LIMIT)
        found += [sandbox.id for sandbox in page.sandboxes]
        request.page_token = page.next_page_token
        daemon.remove(passing)
        passing = daemon.create(labels={"of": "other"}).id
        assert len(found) < 100
    assert [one for one in found if one in listed] == listed
    daemon.remove(passing)


@pytest.mark.parametrize(
    "selector, numbers",
    [
        ("of=lists,odd=1", [1, 3, 5, 7, 9]),
        ("of=lists,odd!=1", [0, 2, 4, 6, 8]),
        ("of=lists, n in (2, 3,44)", [2, 3]),
        ("of=lists,n notin (0,1,2,3,4,5,6)", [7, 8, 9]),
        ("of == lists,!n", []),
        ("of=lists,n", list(range(10))),
        ("of=nothing", []),
    ],
)
def test_selectors(daemon, listed, selector, numbers):
    assert daemon.ids(selector=selector) == [listed[n] for n in numbers]


@pytest.mark.rules("LIST-002")
def test_a_page_token_belongs_to_its_filter(daemon, listed):
    assert len(listed) == 10
    first = daemon.pages(selector="of=lists", page_size=4)[0]
    same = {"selector": "of=lists"}
    for other in ({"selector": "of=list"}, same | {"states": [2]}, same | {"all_owners": True}):
        with refused("PAGE_TOKEN_INVALID", "page_token"):
            daemon.pages(page_token=first.next_page_token, **other)
    token = first.next_page_token
    with refused("PAGE_TOKEN_INVALID", "page_token"):
        daemon.pages(selector="of=lists", page_token=token[:-1] + ("A" if token[-1] != "A" else "B"))


@pytest.mark.rules("LIST-003")
def test_states_filter_and_deleted_are_listed_only_when_named(daemon):
    labels = {"of": "states"}
    ready, stopped, deleted = (daemon.ready(labels=labels) for _ in range(3))
    daemon.stop(stopped, 0)
    daemon.wait(stopped, "STOPPED")
    daemon.remove(deleted)
    for name, sandbox_id in (("READY", ready), ("STOPPED", stopped), ("DELETED", deleted)):
        assert daemon.ids(selector="of=states", states=[sandbox_state(name)]) == [sandbox_id]
    assert daemon.ids(selector="of=states") == [ready, stopped]
    both = [sandbox_state("DELETED"), sandbox_state("READY")]
    assert daemon.ids(selector="of=states", states=both, page_size=1) == [ready, deleted]
    daemon.remove(ready, stopped)


def test_a_list_tells_the_cursor_to_watch_from(daemon):
    cursor = daemon.pages()[0].cursor
    sandbox_id = daemon.create().id
    watch = daemon.watch(after_cursor=cursor)
    event = watch.next()
    assert (event.sandbox_id, event.sequence) == (sandbox_id, 1)
    watch.close()
    daemon.remove(sandbox_id)


def test_large_answers_are_paged(daemon):
    """Environments of 900 KiB each: five of them do not fit into one message."""
    ids = [daemon.create(labels={"of": "large"}, env={f"V{n}": "x" * 100_000 for n in range(9)}).id for _ in range(6)]
    pages = daemon.pages(selector="of=large")
    assert len(pages) > 1
    assert all(page.ByteSize() < 4 * MIB + MIB for page in pages)
    assert [sandbox.id for page in pages for sandbox in page.sandboxes] == ids
    daemon.remove(*ids)


GENERATED = 1001  # more than a page can have


@pytest.fixture(scope="module", name="crowd")
def start_crowd():
    """A daemon with many sandboxes, none of which runs, and their ids."""
    daemon = RestingDaemon()
    daemon.configure(limits={"sandboxes_per_caller": GENERATED})
    daemon.begin()
    request = sandbox_pb2.CreateSandboxRequest()
    futures = [daemon.sandboxes.CreateSandbox.future(request, timeout=LIMIT) for _ in range(GENERATED)]
    yield daemon, [future.result().sandbox.id for future in futures]
    daemon.wipe()


@pytest.fixture(name="exec_crowd")
def start_exec_crowd(start_daemon):
    """A daemon, a sandbox with many execs that wait for its keeper, and their ids."""
    daemon = start_daemon({"limits": {"execs_per_sandbox": GENERATED}})
    sandbox = daemon.ready()
    keeper = daemon.keeper(sandbox)
    os.kill(keeper, signal.SIGSTOP)
    request = exec_pb2.CreateExecRequest(sandbox_id=sandbox, spec={"argv": ["true"]})
    futures = [daemon.execs.CreateExec.future(request, timeout=LIMIT) for _ in range(GENERATED)]
    yield daemon, sandbox, [future.result().exec.id for future in futures]
    daemon.delete(sandbox)
    os.kill(keeper, signal.SIGCONT)


def check_page_sizes(listed, request) -> None:
    """What a list of GENERATED has on its pages: @listed asks, and gives the ids of a page and the next token."""
    for asked, expected in ((0, 100), (100, 100), (999, 999), (1000, 1000), (1001, 1000), (1 << 30, 1000)):
        request.page_size = asked
        ids, token = listed(request)
        assert (len(ids), bool(token)) == (expected, True), asked
    request.page_token = token
    ids, token = listed(request)
    assert (len(ids), token) == (GENERATED - 1000, "")


@pytest.mark.rules("LIST-002")
def test_a_page_of_sandboxes_has_100_and_1000_at_most(crowd):
    daemon, made = crowd

    def listed(request):
        page = daemon.sandboxes.ListSandboxes(request, timeout=LIMIT)
        return [sandbox.id for sandbox in page.sandboxes], page.next_page_token

    check_page_sizes(listed, sandbox_pb2.ListSandboxesRequest())
    assert sorted(daemon.ids()) == sorted(made)


@pytest.mark.rules("ID-002", "LIST-002")
def test_a_page_of_execs_has_100_and_1000_at_most_and_their_ids_cannot_be_guessed(exec_crowd):
    daemon, sandbox, made = exec_crowd

    def listed(request):
        page = daemon.execs.ListExecs(request, timeout=LIMIT)
        return [one.id for one in page.execs], page.next_page_token

    check_page_sizes(listed, exec_pb2.ListExecsRequest(sandbox_id=sandbox))
    check_generated(made, "ex-")


@pytest.mark.rules("ID-002")
def test_generated_ids_of_sandboxes_cannot_be_guessed(crowd):
    check_generated(crowd[1], "sb-")


def check_generated(ids: list[str], prefix: str) -> None:
    """They have their form, differ, and each of their characters may be any."""
    assert all(re.fullmatch(f"{prefix}[a-z0-9]{{20}}", one) for one in ids)
    assert len(set(ids)) == GENERATED
    assert all(len(set(characters)) == 36 for characters in list(zip(*ids))[len(prefix) :])


# ---- Updates ----


@pytest.mark.rules("LIST-004")
def test_an_update_changes_what_its_mask_names_and_nothing_else(daemon, sandbox):
    before = daemon.get(sandbox)
    after = daemon.update(sandbox, "labels", labels={"a": "1"}, idle_ttl=seconds(5), image="host")
    assert dict(after.spec.labels) == {"a": "1"}
    assert after.spec.idle_ttl == before.spec.idle_ttl
    daemon.update(sandbox, "labels", labels={"b": "2"})
    assert dict(daemon.get(sandbox).spec.labels) == {"b": "2"}
    daemon.update(sandbox, "labels")
    assert not daemon.get(sandbox).spec.labels
    action = sandbox_pb2.LIFETIME_ACTION_DELETE
    mask = "max_lifetime", "lifetime_action"
    changed = daemon.update(sandbox, *mask, max_lifetime=seconds(500), lifetime_action=action)
    assert changed.spec.max_lifetime == seconds(500) and changed.spec.lifetime_action == action
    assert changed.lifetime_deadline.seconds == changed.create_time.seconds + 500
    [*_, event] = daemon.history(sandbox)
    assert set(event.sandbox_update.fields) == {"max_lifetime", "lifetime_action"}
    assert state_name(changed) == "READY"


def test_an_update_moves_a_sandbox_between_selectors(daemon, sandbox):
    daemon.update(sandbox, "labels", labels={"moved": "here"})
    assert daemon.ids(selector="moved=here") == [sandbox]
    daemon.update(sandbox, "labels", labels={"moved": "there"})
    assert daemon.ids(selector="moved=here") == []


def test_updates_survive_a_restart(own_daemon):
    sandbox_id = own_daemon.ready()
    own_daemon.update(sandbox_id, "labels", "idle_ttl", labels={"kept": "yes"}, idle_ttl=seconds(1234))
    before = own_daemon.get(sandbox_id)
    own_daemon.restart(kill=True)
    after = own_daemon.get(sandbox_id)
    assert after.spec == before.spec
    assert after.sequence == before.sequence


# ---- Deleting by labels ----


def test_deleting_by_labels_takes_what_matches(daemon):
    ids = [daemon.create(labels={"of": "delete", "n": str(n)}).id for n in range(4)]
    request = sandbox_pb2.DeleteSandboxesRequest(selector="of=delete,n notin (3)")
    assert list(daemon.sandboxes.DeleteSandboxes(request, timeout=LIMIT).sandbox_ids) == ids[:3]
    for one in ids[:3]:
        daemon.wait(one, "DELETED")
    assert daemon.ids(selector="of=delete") == ids[3:]
    assert not daemon.sandboxes.DeleteSandboxes(request, timeout=LIMIT).sandbox_ids
    daemon.remove(ids[3])


# ---- Owners ----


@pytest.fixture(name="group_daemon")
def start_group_daemon(start_daemon):
    daemon = start_daemon({"socket_group": "nogroup", "limits": {"sandboxes_per_caller": 2, "sandboxes": 3}})
    daemon.folder.chmod(0o755)
    return daemon


def test_the_socket_is_for_its_owner_only(daemon):
    assert daemon.socket.stat().st_mode & 0o777 == 0o600


def test_the_socket_is_for_the_group_where_there_is_one(group_daemon):
    assert group_daemon.socket.stat().st_mode & 0o777 == 0o660
    assert group_daemon.socket.stat().st_gid == NOGROUP


@pytest.mark.rules("AUTH-001", "AUTH-005")
def test_others_neither_see_nor_touch_a_sandbox(group_daemon):
    other = group_daemon.client(NOBODY, NOGROUP)
    assert (other.info().caller, other.info().caller_is_admin) == (f"uid:{NOBODY}", False)
    mine, theirs = group_daemon.ready(labels={"a": "b"}), other.ready(labels={"a": "b"})
    assert other.get(theirs).owner == f"uid:{NOBODY}"
    assert other.ids() == [theirs]
    assert other.ids(selector="a=b") == [theirs]
    for touch in (other.get, other.stop, other.resume, other.pause, other.unpause, other.delete):
        with refused("SANDBOX_NOT_FOUND"):
            touch(mine)
    with refused("SANDBOX_NOT_FOUND"):
        other.update(mine, "labels")
    with refused("SANDBOX_NOT_FOUND"):
        other.run(mine, "true")
    with refused("CALLER_NOT_ALLOWED"):
        other.ids(all_owners=True)
    with refused("CALLER_NOT_ALLOWED"):
        other.watch(all_owners=True)
    with refused("CALLER_NOT_ALLOWED"):
        request = sandbox_pb2.DeleteSandboxesRequest(selector="a", all_owners=True)
        other.sandboxes.DeleteSandboxes(request, timeout=LIMIT)
    watch = other.watch(after_cursor=0)
    assert watch.until_state("READY")[-1].sandbox_id == theirs
    watch.close()
    request = sandbox_pb2.DeleteSandboxesRequest(selector="a=b")
    assert list(other.sandboxes.DeleteSandboxes(request, timeout=LIMIT).sandbox_ids) == [theirs]
    assert state_name(group_daemon.get(mine)) == "READY"


@pytest.mark.rules("AUTH-005")
def test_admins_see_all_and_list_their_own_by_default(group_daemon):
    other = group_daemon.client(NOBODY, NOGROUP)
    mine, theirs = group_daemon.create().id, other.create().id
    assert group_daemon.ids() == [mine]
    assert group_daemon.ids(all_owners=True) == [mine, theirs]
    assert group_daemon.get(theirs).id == theirs
    group_daemon.remove(theirs)


@pytest.mark.rules("IDEM-001")
def test_request_ids_of_different_callers_do_not_meet(group_daemon):
    other = group_daemon.client(NOBODY, NOGROUP)
    assert group_daemon.create(request_id="same").id != other.create(request_id="same").id


def test_an_id_of_somebody_else_is_taken(group_daemon):
    other = group_daemon.client(NOBODY, NOGROUP)
    group_daemon.create("sb-mine")
    with refused("ID_TAKEN"):
        other.create("sb-mine")


@pytest.mark.rules("AUTH-001")
def test_callers_outside_of_the_group_are_refused(group_daemon):
    """Who got hold of a connection without being allowed is refused by what the kernel says of him."""
    group_daemon.socket.chmod(0o666)
    stranger = group_daemon.client(23456, 23456)
    with refused("CALLER_NOT_ALLOWED"):
        stranger.info()
    with refused("CALLER_NOT_ALLOWED"):
        stranger.create()
    with refused("CALLER_NOT_ALLOWED"):
        stranger.watch()


# ---- Quotas ----


def test_quotas_of_a_caller_and_of_all(group_daemon):
    other = group_daemon.client(NOBODY, NOGROUP)
    mine = [group_daemon.create().id for _ in range(2)]
    with refused("QUOTA_EXCEEDED") as error:
        group_daemon.create()
    assert error.metadata == {"limit": "sandboxes_per_caller", "value": "2"}
    other.create()
    with refused("QUOTA_EXCEEDED") as error:
        other.create()
    assert error.metadata == {"limit": "sandboxes", "value": "3"}
    group_daemon.remove(mine[0])
    other.create()


def test_a_quota_holds_after_a_restart(start_daemon):
    daemon = start_daemon({"limits": {"sandboxes": 1}})
    daemon.ready()
    daemon.restart()
    with refused("QUOTA_EXCEEDED"):
        daemon.create()


def test_a_repeated_create_does_not_count_twice(start_daemon):
    daemon = start_daemon({"limits": {"sandboxes": 1}})
    first = daemon.create(request_id="one")
    assert daemon.create(request_id="one").id == first.id


def test_quotas_of_execs(start_daemon):
    daemon = start_daemon({"limits": {"execs_per_sandbox": 2, "execs": 3}})
    one, two = daemon.ready(), daemon.ready()
    execs = [daemon.start(one, "sleep", "100").id for _ in range(2)]
    with refused("QUOTA_EXCEEDED") as error:
        daemon.start(one, "true")
    assert error.metadata == {"limit": "execs_per_sandbox", "value": "2"}
    daemon.start(two, "sleep", "100")
    with refused("QUOTA_EXCEEDED") as error:
        daemon.start(two, "true")
    assert error.metadata == {"limit": "execs", "value": "3"}
    daemon.cancel(one, execs[0], 0)
    daemon.wait_exec(one, execs[0])
    daemon.run(two, "true")


def test_streams_of_a_caller_are_limited(start_daemon):
    daemon = start_daemon({"limits": {"streams_per_caller": 2}})
    watches = [daemon.watch() for _ in range(2)]
    with refused("TOO_MANY_STREAMS"):
        daemon.watch()
    watches[0].close()

    def has_place() -> bool:
        try:
            daemon.watch()
            return True
        except grpc.RpcError:
            return False  # the daemon has not heard of the end yet

    wait_until(has_place)
