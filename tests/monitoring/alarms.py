"""Sentences of a running service about one thing that is watched."""

from tests.api.driving import Driver


async def told(driver: Driver, name: str) -> list[str]:
    """Look; return what readiness says of an alarm, with which metrics and feed must agree."""
    await driver.service.watchdog.look()
    ready = await driver.client.get("/readyz")
    assert ready.status_code == 200
    sentences: list[str] = ready.json().get(name, [])
    assert (await driver.api("GET", "/outcomes")).json().get("alarms", []) == sentences
    figures = (await driver.client.get("/metrics")).text
    assert f"tallyhook_{name}_alarm {float(len(sentences))}" in figures
    return sentences
