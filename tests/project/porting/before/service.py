"""A small FastAPI service, whose work after the answer is done by BackgroundTasks: `uvicorn service:app`."""

import asyncio
import os
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID, uuid4

from fastapi import BackgroundTasks, FastAPI, HTTPException
from pydantic import BaseModel
from redis.asyncio import Redis

store = Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)


class Order(BaseModel):
    item: str
    count: int = 1
    due: datetime | None = None


@asynccontextmanager
async def lifespan(app: FastAPI):
    yield
    await store.aclose()


app = FastAPI(lifespan=lifespan)


async def fulfil(id: UUID, order: Order) -> None:
    if order.item == "unicorn":
        await store.set(f"order:{id}", "failed")
        raise ValueError("there are no unicorns")
    await asyncio.sleep(0.05)
    await store.set(f"order:{id}", f"{order.count} x {order.item} sent")


def audit(id: UUID) -> None:
    """A plain function: it runs in a thread."""


@app.post("/orders", status_code=202)
async def create(order: Order, background: BackgroundTasks) -> dict[str, UUID]:
    id = uuid4()
    await store.set(f"order:{id}", "waiting")
    background.add_task(fulfil, id, order)
    background.add_task(audit, id)
    return {"id": id}


@app.get("/orders/{id}")
async def read(id: UUID) -> dict[str, str]:
    state = await store.get(f"order:{id}")
    if state is None:
        raise HTTPException(404)
    return {"state": state}
