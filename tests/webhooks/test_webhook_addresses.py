"""Where webhooks may go: clients choose the URLs, so each may be an attack."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from datp_tasks.errors import RequestError, WebhookInvalid
from datp_tasks.outbound.addresses import (
    Target,
    check_addresses,
    check_url,
    is_bad,
    target_of,
)
from datp_tasks.settings import Settings

SETTINGS = Settings()
OPEN = Settings(webhook_private_hosts=("127.0.0.1", "10.0.0.0/8", "hooks.internal", "box:9000"))

GOOD = [
    "https://example.com",
    "https://example.com/hook?x=1&y=%20",
    "https://EXAMPLE.com:8443/hook",
    "https://xn--bcher-kva.example./a",
    "https://a_b.example.com/",
]

REFUSED = {
    "": "up to 2000 characters",
    "https://example.com/" + "x" * 2_000: "up to 2000 characters",
    "http://example.com/": "must start with https://",
    "ftp://example.com/": "a whole URL",
    "file:///etc/passwd": "a whole URL",
    "//example.com/": "a whole URL",
    "https:/example.com": "a whole URL",
    "https://": "a whole URL",
    "https://user:secret@example.com/": "name or password",
    "https://example.com@127.0.0.1/": "name or password",
    "https://example.com:22/": "ports 443, 8443, not 22",
    "https://example.com:0/": "not a host",
    "https://example.com:/": "not a host",
    "https://example.com:99999/": "not a URL",
    "https://example.com/#top": "no # part",
    "https://example.com/a b": "characters of a URL",
    "https://example.com/\r\nx: y": "characters of a URL",
    "https://example.com\\@127.0.0.1/": "characters of a URL",
    "https://bücher.example/": "xn--",
    "https://exämple.com/": "xn--",
    "https://a..b/": "not the name of a host",
    "https://-a.com/": "not the name of a host",
    "https://%31%32%37.0.0.1/": "not the name of a host",
    "https://[::1]x/": "not a host",
    "https://[v1.x]/": "not a host",
}

#: The same place in the notations that one program or another understands.
LITERALS = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "127.0.0.1.",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[fe80::1%25eth0]",
    "0.0.0.0",
    "0",
    "10.0.0.1",
    "169.254.169.254",
    "[::ffff:169.254.169.254]",
    "[fd00:ec2::254]",
    "93.184.216.34",
    "256.1.1.1",
    "1.2.3.4.5",
    "1.2.3.0x4",
]

BAD = [
    "0.0.0.0",
    "0.1.2.3",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "127.9.9.9",
    "169.254.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:a00:1::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00::1",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]
PUBLIC = ["8.8.8.8", "93.184.216.34", "172.32.0.1", "2001:4860:4860::8888", "2606:4700::1"]


@pytest.mark.parametrize("url", GOOD)
def test_an_ordinary_url_is_accepted(url: str) -> None:
    check_url(url, SETTINGS)


@pytest.mark.parametrize("url", REFUSED)
def test_a_url_that_is_not_acceptable_is_refused_with_a_reason(url: str) -> None:
    with pytest.raises(WebhookInvalid) as refused:
        check_url(url, SETTINGS)
    assert REFUSED[url] in str(refused.value)
    assert isinstance(refused.value, RequestError)


@pytest.mark.parametrize("value", [None, 1, b"https://example.com", ["https://example.com"]])
def test_what_is_no_text_is_no_url(value: object) -> None:
    with pytest.raises(WebhookInvalid):
        check_url(value, SETTINGS)


@pytest.mark.parametrize("host", LITERALS)
def test_an_address_instead_of_a_name_is_refused_in_every_notation(host: str) -> None:
    with pytest.raises(WebhookInvalid):
        check_url(f"https://{host}/", SETTINGS)


@pytest.mark.parametrize("text", BAD)
def test_an_address_that_is_not_public_is_known(text: str) -> None:
    assert is_bad(ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_an_address_that_is_public_is_known(text: str) -> None:
    assert not is_bad(ip_address(text))


def target(url: str, settings: Settings = SETTINGS) -> Target:
    return target_of(url, settings)


@pytest.mark.parametrize("bad", BAD)
def test_one_bad_address_among_good_ones_is_enough(bad: str) -> None:
    with pytest.raises(WebhookInvalid):
        check_addresses(target("https://example.com/"), [*PUBLIC, bad], SETTINGS)


def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(WebhookInvalid, match="has no address"):
        check_addresses(target("https://example.com/"), [], SETTINGS)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8123/x",
        "http://10.9.8.7/x",
        "http://[::ffff:10.1.1.1]:80/x",
        "http://hooks.internal:8080/x",
        "http://box:9000/x",
    ],
)
def test_what_the_operator_names_is_trusted(url: str) -> None:
    found = target(url, OPEN)
    assert found.is_trusted
    check_addresses(found, ["10.1.2.3"], OPEN)


@pytest.mark.parametrize("url", ["http://box:9001/x", "http://127.0.0.2/x", "http://11.0.0.1/x"])
def test_what_the_operator_does_not_name_is_not(url: str) -> None:
    with pytest.raises(WebhookInvalid):
        check_url(url, OPEN)


def test_a_public_name_may_lead_into_a_network_that_the_operator_names() -> None:
    check_addresses(target("https://example.com/", OPEN), ["10.1.2.3"], OPEN)
    with pytest.raises(WebhookInvalid):
        check_addresses(target("https://example.com/", OPEN), ["192.168.0.1"], OPEN)


@pytest.mark.parametrize(
    "text",
    [
        *("169.254.169.254", "169.254.170.23", "168.63.129.16", "::ffff:169.254.169.254"),
        *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
    ],
)
def test_the_metadata_of_a_cloud_is_refused_whatever_the_operator_allows(text: str) -> None:
    all_open = Settings(webhook_private_hosts=("0.0.0.0/0", "::/0", "hooks.internal"))
    shown = f"[{text}]" if ":" in text else text
    with pytest.raises(WebhookInvalid, match="a cloud metadata address"):
        check_url(f"https://{shown}/", all_open)
    with pytest.raises(WebhookInvalid, match="a cloud metadata address"):
        check_addresses(target("https://hooks.internal/", all_open), [text], all_open)


def test_the_host_header_names_a_port_only_if_it_is_unusual() -> None:
    assert target("https://example.com/").host_header == "example.com"
    assert target("https://example.com:8443/").host_header == "example.com:8443"
