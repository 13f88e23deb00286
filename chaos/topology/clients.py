"""A client of redis-py for the url of any topology: the harness reads keys by itself, not by the engine."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import redis
from redis.cluster import ClusterNode


def client_of(url: str, timeout_s: float) -> Any:
    """A client that finds the primary by itself; texts come decoded."""
    common: dict[str, Any] = {"decode_responses": True, "socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    parts = urlsplit(url)
    if parts.scheme == "redis":
        return redis.Redis.from_url(url, **common)
    seeds = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in parts.netloc.split(","))]
    if parts.scheme == "sentinel":
        return redis.Sentinel(seeds, **common).master_for(parts.path.strip("/"))
    return redis.RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in seeds], **common)
