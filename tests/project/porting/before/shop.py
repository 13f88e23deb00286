"""A shop's tasks, with Celery: `celery -A shop worker -B -Q orders,mails` in one shell, `python shop.py` in another."""

import os
import time

from celery import Celery, chain, chord
from celery.exceptions import TimeoutError
from redis import Redis

url = os.environ["REDIS_URL"]
store = Redis.from_url(url, decode_responses=True)
app = Celery("shop", broker=url, backend=url)
app.conf.update(task_default_queue="orders", task_routes={"shop.mail": {"queue": "mails"}}, result_expires=3600)
app.conf.beat_schedule = {"pulse": {"task": "shop.pulse", "schedule": 1.0}}


@app.task
def price(item, count=1):
    return {"pen": 2, "ink": 5}[item] * count


@app.task
def total(prices):
    return sum(prices)


@app.task
def receipt(amount, customer):
    return f"{customer} pays {amount}"


@app.task(bind=True, autoretry_for=(ConnectionError,), retry_backoff=False, default_retry_delay=0, max_retries=4)
def charge(self, customer):
    self.update_state(state="PROGRESS", meta={"asked": customer})
    if store.incr(f"charge:{customer}") < 3:
        raise ConnectionError("the bank is away")
    return self.request.retries + 1


@app.task(bind=True, max_retries=1)
def book(self, order):
    if self.request.retries == 0:
        raise self.retry(countdown=0.2)
    raise KeyError(order)


@app.task
def mail(to):
    store.rpush("mailed", to)


@app.task
def pulse():
    store.incr("pulses")


def main():
    print("price:", price.delay("pen", count=3).get(timeout=20))
    print("chain:", chain(price.s("ink"), receipt.s("ada")).apply_async().get(timeout=20))
    print("chord:", chord([price.s("pen"), price.s("ink", 2)])(total.s()).get(timeout=20))
    print("charged at run", charge.apply_async(["ada"], priority=9).get(timeout=20))
    error = (failed := book.delay("order-7")).get(timeout=20, propagate=False)
    print("book:", f"{type(error).__name__}: {error}", "- failed:", failed.failed())
    mail.apply_async(["ada"], countdown=0.5).get(timeout=20)
    never = mail.apply_async(["bob"], countdown=2)
    never.revoke()
    try:
        never.get(timeout=20)
    except Exception as error:
        print("revoked:", not isinstance(error, TimeoutError))
    print("mailed:", store.lrange("mailed", 0, -1))
    while int(store.get("pulses") or 0) < 2:
        time.sleep(0.05)
    print("the beat goes on")


if __name__ == "__main__":
    main()
