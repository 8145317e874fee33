"""Options of ``serve``, by their subjects: who may connect, pages, RocketMQ's clients, the archive, limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from commitlog_store.cli.options import DecodeOption, option
from commitlog_store.cli.values import size_option

if TYPE_CHECKING:
    from commitlog_store.serve.listen import ListenSettings, TlsFiles

_Certificate = Annotated[str | None, option("FILE", "The server's certificate (PEM).")]
_Key = Annotated[str | None, option("FILE", "The certificate's key (PEM).")]
_ClientCa = Annotated[str | None, option("FILE", "Clients must have a certificate of these (PEM).")]
_RocketMQ = Annotated[str | None, option("HOST:PORT", "Where RocketMQ's clients find name server and broker.")]
_Tokens = Annotated[str | None, option("FILE", "Clients must have one of these tokens: token new.")]
_NoDownload = Annotated[bool, typer.Option("--no-download", help="Pages show messages, and offer none for download.")]
_DrainTimeout = Annotated[float, typer.Option(min=0.0, metavar="SECONDS", help="How long calls under way have to end.")]
_Http = Annotated[str | None, option("HOST:PORT", "Where browsers find pages about the store.")]
_TrustedProxies = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESSES",
        help="With --http: proxies whose X-Forwarded-Host, -Proto and -For count: 127.0.0.1,10.0.0.0/8.",
        show_default="none",
    ),
]
_NameServers = Annotated[str | None, option("HOST:PORT;...", "RocketMQ's name servers, where the broker registers.")]
_Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="The broker's address that RocketMQ's clients get.", show_default="--rocketmq"
    ),
]
_MaxCalls = Annotated[
    int, typer.Option(min=1, metavar="COUNT", help="The most calls at once; more are asked to come again.")
]
_CallTimeout = Annotated[
    float, typer.Option(min=1.0, metavar="SECONDS", help="How long a call may take; readers continue with another.")
]
_MaxStaged = Annotated[
    int | None,
    typer.Option(
        parser=size_option,
        metavar="SIZE",
        help="The most that batches hold which are not committed: 50G.",
        show_default="a quarter of the disk",
    ),
]
_Archive = Annotated[str | None, option("URL", "Archive closed log files there; retention waits.")]
_MaxRate = Annotated[
    int | None, option("SIZE", "With --archive: upload at most so many bytes a second.", parser=size_option)
]
_Acl = Annotated[str | None, option("FILE", "RocketMQ's clients must sign with an account of this plain_acl.yml.")]


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may connect, and how."""

    tls_cert: _Certificate = None
    tls_key: _Key = None
    tls_client_ca: _ClientCa = None
    tokens: _Tokens = None

    def listening(self, address: str) -> ListenSettings:
        """``BadParameter`` for a part of what TLS takes; ``InvalidValue``."""
        from commitlog_store.serve.listen import ListenSettings

        return ListenSettings.parse(address, tls=self._tls(), tokens=self.tokens)

    def _tls(self) -> TlsFiles | None:
        from commitlog_store.serve.listen import TlsFiles

        certificate, key, client_ca = self.tls_cert, self.tls_key, self.tls_client_ca
        if (certificate is None) != (key is None) or (client_ca is not None and certificate is None):
            raise typer.BadParameter("TLS takes both, the certificate and its key.", param_hint="--tls-cert, --tls-key")
        if certificate is None or key is None:
            return None
        return TlsFiles(certificate=certificate, key=key, client_ca=client_ca)


NO_ACCESS_RULES = Access()


@dataclass(frozen=True, kw_only=True)
class PagesOptions:
    """The pages for browsers."""

    http: _Http = None
    no_download: _NoDownload = False
    trusted_proxies: _TrustedProxies = None
    decode: DecodeOption = None

    def check(self) -> None:
        """``BadParameter``."""
        _refuse_without(
            *(self.http, "--http"),
            no_download=self.no_download,
            trusted_proxies=self.trusted_proxies,
            decode=self.decode,
        )


NO_PAGES = PagesOptions()


@dataclass(frozen=True, kw_only=True)
class RocketMQOptions:
    """RocketMQ's own clients."""

    rocketmq: _RocketMQ = None
    advertise: _Advertise = None
    namesrv: _NameServers = None
    acl: _Acl = None

    def check(self) -> None:
        """``BadParameter``."""
        _refuse_without(self.rocketmq, "--rocketmq", advertise=self.advertise, namesrv=self.namesrv, acl=self.acl)


NO_ROCKETMQ = RocketMQOptions()


@dataclass(frozen=True, kw_only=True)
class ArchivingOptions:
    """The archive that is made of the store."""

    archive: _Archive = None
    max_rate: _MaxRate = None

    def check(self) -> None:
        """``BadParameter``."""
        _refuse_without(self.archive, "--archive", max_rate=self.max_rate)


NO_ARCHIVE = ArchivingOptions()


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """The limits of calls."""

    drain_timeout: _DrainTimeout = 10.0
    max_calls: _MaxCalls = 256
    call_timeout: _CallTimeout = 300.0
    max_staged: _MaxStaged = None


USUAL_LIMITS = CallLimits()


def _refuse_without(needed: str | None, name: str, **given: object) -> None:
    """``BadParameter`` for options that mean nothing without another one."""
    lonely = ", ".join(f"--{option.replace('_', '-')}" for option, value in given.items() if value)
    if needed is None and lonely:
        raise typer.BadParameter(f"Needs {name}.", param_hint=lonely)
