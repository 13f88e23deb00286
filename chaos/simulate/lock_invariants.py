"""Invariants of locks: one holder at a time, for as long as was said and no longer; its fence is above that of every holder
before (rule 6), and no late copy takes a lock that its caller has given back."""

from __future__ import annotations

from chaos.simulate.book import Book
from chaos.simulate.server import Delivery
from chaos.simulate.world import Found
from engine.ops.workers import AcquireLock, ExtendLock, LockReply, ReleaseLock


def check_locks(delivery: Delivery, book: Book, *, clock_runs: bool) -> None:
    """What one call on a lock does. Who holds a lock is known from the replies; where the clock steps, the times are not looked
    at."""
    operation, reply = delivery.operation, delivery.reply
    if not isinstance(reply, LockReply):
        return
    match operation:
        case AcquireLock():
            _acquired(delivery, operation, reply, book, clock_runs)
        case ExtendLock():
            _extended(delivery, operation, reply, book, clock_runs)
        case ReleaseLock():
            _released(operation, reply, book)
        case _:
            pass
    _keys(delivery, book)


def _acquired(delivery: Delivery, acquire: AcquireLock, reply: LockReply, book: Book, clock_runs: bool) -> None:
    name, now_ms = acquire.name, delivery.now_ms
    token, since = book.locks.get(name, ("", None))
    live = since is not None and since.until_ms > now_ms
    if reply.result == "held" and token == acquire.token:
        if live and since is not None and (reply.fence, reply.until_ms) != (since.fence, since.until_ms) and clock_runs:
            raise Found("lock", f"{name} is held until {since.until_ms}, a repeat is told {reply.until_ms}", (name,))
    elif reply.result == "held":
        if live and clock_runs and since is not None:
            left_ms = since.until_ms - now_ms
            raise Found("lock", f"{name} is given to {acquire.token} and is held by {token} for another {left_ms} ms", (name,))
        if acquire.token in book.lock_tokens:
            raise Found("lock twice", f"a late copy takes {name} for {acquire.token}, which has held it before", (name,))
        if now_ms > acquire.not_after_ms:
            raise Found("lock late", f"{name} is taken {now_ms - acquire.not_after_ms} ms after the call was void", (name,))
        # What a failover has taken back was above the new one by no more than the clock is behind.
        known = max(book.lock_fences.get(name, 0), book.lock_fences_ever.get(name, 0) - delivery.behind_ms)
        if reply.fence <= known:
            raise Found("lock fence", f"{name} has had fence {known}, its new holder gets {reply.fence}", (name,))
        if reply.until_ms != now_ms + acquire.ttl_ms:
            held_ms = reply.until_ms - now_ms
            raise Found("lock", f"{name} is asked for {acquire.ttl_ms} ms, and is held for {held_ms} ms", (name,))
        book.lock_fences[name] = reply.fence
        book.lock_fences_ever[name] = max(reply.fence, book.lock_fences_ever.get(name, 0))
        book.lock_tokens.add(acquire.token)
        book.renewals.pop(name, None)
        book.locks[name] = (acquire.token, reply)
    elif reply.result == "taken" and not live and clock_runs:
        raise Found("lock refused", f"nobody holds {name}, and {acquire.token} does not get it", (name,))


def _extended(delivery: Delivery, extend: ExtendLock, reply: LockReply, book: Book, clock_runs: bool) -> None:
    name, now_ms = extend.name, delivery.now_ms
    token, since = book.locks.get(name, ("", None))
    live = token == extend.token and since is not None and (since.until_ms > now_ms or not clock_runs)
    if reply.result == "lost":
        if live and clock_runs:
            raise Found("lock refused", f"{extend.token} holds {name}, and is told that it has lost it", (name,))
        return
    if not live or since is None:
        raise Found("lock", f"{extend.token} does not hold {name} any more, and its renewal is told {reply.result}", (name,))
    if reply.result == "refused":
        return
    fresh = extend.counter > book.renewals.get(name, 0)
    if fresh and now_ms > extend.not_after_ms:
        raise Found("lock late", f"{name} is renewed {now_ms - extend.not_after_ms} ms after the call was void", (name,))
    wanted_ms = now_ms + extend.ttl_ms if fresh else since.until_ms
    if clock_runs and reply.until_ms != wanted_ms:
        raise Found("lock", f"{name} is renewed until {reply.until_ms}, which should be {wanted_ms}", (name,))
    if reply.fence != since.fence:
        raise Found("lock fence", f"the holder of {name} had fence {since.fence}, and has {reply.fence}", (name,))
    book.renewals[name] = max(extend.counter, book.renewals.get(name, 0))
    book.locks[name] = (token, reply)


def _released(release: ReleaseLock, reply: LockReply, book: Book) -> None:
    token, _ = book.locks.get(release.name, ("", None))
    if token == release.token:
        if reply.result != "released":
            raise Found("lock refused", f"{release.token} has held {release.name}, and cannot give it back", (release.name,))
        del book.locks[release.name]


def _keys(delivery: Delivery, book: Book) -> None:
    """The keys say what the replies have said."""
    for name in delivery.after.changed:
        if not name.startswith("lock:"):
            continue
        table, (token, reply) = delivery.after.table(name), book.locks.get(name[5:], ("", None))
        if table.get("token", "") != token:
            kept = table.get("token") or "nobody"
            raise Found("lock", f"{name[5:]} was given to {token or 'nobody'}, and is kept for {kept}", (name[5:],))
        if reply is not None and int(table["until_ms"]) > reply.until_ms:
            raise Found("lock", f"{name[5:]} is held until {reply.until_ms}, and is kept until {table['until_ms']}", (name[5:],))
