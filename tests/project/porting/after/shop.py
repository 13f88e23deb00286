"""A shop's tasks, with Ironclaim: `ironclaim worker shop:orders shop:mails` in one shell, `python shop.py` in another."""

import os
import time

from redis import Redis

from engine import Job, Queue, RetryLater

url = os.environ["REDIS_URL"]
store = Redis.from_url(url, decode_responses=True)
orders = Queue("orders", url=url)
mails = Queue("mails", url=url)


@orders.job("price")
def price(item: str, count: int = 1) -> int:
    return {"pen": 2, "ink": 5}[item] * count


@orders.job("total")
def total(job: Job) -> int:
    return sum(orders.results.wait(id).get() for id in job.parents)


@orders.job("receipt")
def receipt(job: Job, customer: str) -> str:
    (amount,) = (orders.results.wait(id).get() for id in job.parents)
    return f"{customer} pays {amount}"


@orders.job("charge", attempts=5, backoff_ms=0)
def charge(job: Job, customer: str) -> int:
    job.progress(50, "asked", customer)
    if store.incr(f"charge:{customer}") < 3:
        raise ConnectionError("the bank is away")
    return job.attempt


@orders.job("book", attempts=2, backoff_ms=0)
def book(job: Job, order: str) -> None:
    if job.attempt == 1:
        raise RetryLater(200)
    raise KeyError(order)


@mails.job("mail")
def mail(to: str) -> None:
    store.rpush("mailed", to)


@orders.job("pulse")
def pulse() -> None:
    store.incr("pulses")


def main():
    print("price:", price.call("pen", count=3))
    print("chain:", receipt.with_options(needs=[price.enqueue("ink").job]).call("ada"))
    print("chord:", total.with_options(needs=[price.enqueue("pen").job, price.enqueue("ink", 2).job]).call())
    print("charged at run", charge.with_options(priority=9).call("ada"))
    failed = orders.results.wait(book.enqueue("order-7").job)
    print("book:", failed.error, "- failed:", not failed.ok)
    mail.with_options(delay_ms=500).call("ada")
    never = mail.with_options(delay_ms=2_000).enqueue("bob").job
    print("revoked:", mails.jobs.cancel(never).done)
    print("mailed:", store.lrange("mailed", 0, -1))
    while int(store.get("pulses") or 0) < 2:
        time.sleep(0.05)
    print("the beat goes on")


orders.schedules.put("pulse", pulse, every_ms=1_000)

if __name__ == "__main__":
    main()
