"""Background turns whose answers go elsewhere as well: what is pushed, and lost, takes nothing of the result away."""

from __future__ import annotations

from answer_scenes import Routes
from background import ended, look, send
from inboxes import acknowledge, following, inbox, items
from live_server import until
from talks import start


def test_background_retry_and_dead_letter(routes: Routes) -> None:
    walter = routes.server.member("walter")
    talk = start(walter)
    token = send(walter, talk, "lost for ever", responseTarget={"kind": "channel", "channel": "broken"})
    done = ended(walter, token)
    (lost,) = routes.settled(walter, talk, 1)["intended"]
    assert lost["state"] == "dead"
    operator = routes.server.client("human:oscar", "agents-operator")
    shown = operator.get(f"/v1/ops/deliveries/{lost['deliveryId']}").json()
    assert (shown["delivery"]["state"], len(shown["attempts"])) == ("dead", 2)
    assert look(walter, token) == done
    assert (done["status"], done["result"]) == ("completed", "echo: lost for ever")
    purged = operator.post(f"/v1/ops/deliveries/{lost['deliveryId']}/purge", json={"reason": "wrong_person"})
    assert purged.status_code == 202
    assert look(walter, token) == done, "not even a purge of the payload"


def test_an_answer_comes_to_the_inbox_of_who_asked(routes: Routes) -> None:
    wendy, other = routes.server.member("wendy"), routes.server.member("walter")
    talk = start(wendy)
    with following(wendy) as stream:
        token = send(
            wendy, talk, "to my inbox", responseTarget={"kind": "channel", "channel": "box", "echoInput": True}
        )
        frames = items(stream, 2)
    (intended,) = routes.settled(wendy, talk, 1)["intended"]
    assert (intended["channel"], intended["state"]) == ("box", "accepted")
    found = inbox(wendy)["items"]
    assert [frame.json for frame in frames] == found
    assert [(row["text"], row.get("echo"), row["deliveryId"]) for row in found] == [
        ("to my inbox", True, intended["deliveryId"]),
        ("echo: to my inbox", None, intended["deliveryId"]),
    ]
    assert {(row["conversation"], row["turn"]) for row in found} == {(talk, 1)}
    assert ended(wendy, token)["result"] == "echo: to my inbox"
    assert inbox(other)["items"] == []
    assert acknowledge(wendy, [], [intended["deliveryId"]]) == 1
    assert [row["observed"] for row in inbox(wendy)["items"]] == [True, True]


def test_an_inbox_that_was_revoked_in_time_stays_empty(routes: Routes) -> None:
    wanda = routes.server.member("wanda")
    talk = start(wanda)
    token = send(wanda, talk, "never to be seen", responseTarget={"kind": "channel", "channel": "box"})
    until(lambda: inbox(wanda)["items"], 20, "the item")
    (row,) = inbox(wanda)["items"]
    operator = routes.server.client("human:oscar", "agents-operator")
    purge = operator.post(f"/v1/ops/deliveries/{row['deliveryId']}/purge", json={"reason": "wrong_person"})
    assert purge.status_code == 202
    assert inbox(wanda)["items"] == []
    assert ended(wanda, token)["status"] == "completed"
