"""A small FastAPI service, whose work after the answer is jobs: `uvicorn service:app`, and `ironclaim worker service:queue`."""

import asyncio
import os
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID, uuid4

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from redis.asyncio import Redis

from engine import Queue

store = Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
queue = Queue("orders", url=os.environ["REDIS_URL"])


class Order(BaseModel):
    item: str
    count: int = 1
    due: datetime | None = None


@asynccontextmanager
async def lifespan(app: FastAPI):
    yield
    await queue.aclose()
    await store.aclose()


app = FastAPI(lifespan=lifespan)


@queue.job("fulfil", attempts=1)
async def fulfil(id: UUID, order: Order) -> None:
    if order.item == "unicorn":
        await store.set(f"order:{id}", "failed")
        raise ValueError("there are no unicorns")
    await asyncio.sleep(0.05)
    await store.set(f"order:{id}", f"{order.count} x {order.item} sent")


@queue.job("audit", attempts=1)
def audit(id: UUID) -> None:
    """A plain function: it runs in a thread."""


@app.post("/orders", status_code=202)
async def create(order: Order) -> dict[str, UUID]:
    id = uuid4()
    await store.set(f"order:{id}", "waiting")
    await fulfil.aenqueue(id, order)
    await audit.aenqueue(id)
    return {"id": id}


@app.get("/orders/{id}")
async def read(id: UUID) -> dict[str, str]:
    state = await store.get(f"order:{id}")
    if state is None:
        raise HTTPException(404)
    return {"state": str(state)}
