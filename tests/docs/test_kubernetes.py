"""The manifests in ``examples/kubernetes``: they fit each other, the configuration and the routes.

No Kubernetes is needed. What a pod does before its member starts is done here, by its own script.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner

from coordinator.cli.certs import certs
from coordinator.cli.electing import elect
from coordinator.node.config import Config
from coordinator.node.config_file import load
from coordinator.node.config_rules import what_is_off
from coordinator.node.secret_file import ensure_secret, read_secrets
from coordinator.node.server import Server
from coordinator.tls.certificates import of_door, of_member
from coordinator.wire.http.openapi import openapi_document
from tests.docs.pages import ROOT

FOLDER = ROOT / "examples" / "kubernetes"
NAME = "COORDINATOR_MEMBER_MEMBER_ID"
CONFIG = FOLDER / "coordinator.toml"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))


def read(name: str) -> dict[str, dict[str, Any]]:
    """Return the objects of one file by their kinds, each of which it has once."""
    objects = list(yaml.safe_load_all((FOLDER / name).read_text("utf-8")))
    by_kind = {each["kind"]: each for each in objects}
    assert len(by_kind) == len(objects)
    return by_kind


MEMBERS = read("members.yaml")
SET = MEMBERS["StatefulSet"]["spec"]
POD = SET["template"]["spec"]
(MEMBER,) = POD["containers"]
(FIRST,) = POD["initContainers"]
LABELS = SET["template"]["metadata"]["labels"]
CLIENT = read("client.yaml")
CLIENT_POD = CLIENT["Deployment"]["spec"]["template"]["spec"]
(CLIENT_CONTAINER,) = CLIENT_POD["containers"]
NAMES = [f"coordinator-{number}" for number in range(SET["replicas"])]


def environment_of(container: dict[str, Any], pod: str) -> dict[str, str]:
    """Return what ``container`` finds in its environment, in the pod of this name."""
    return {
        each["name"]: each.get("value")
        or {"metadata.name": pod}[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }


def mounts_of(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["mountPath"] for each in container["volumeMounts"]}


def config_of(pod: str, path: Path = CONFIG) -> Config:
    return load(path, environment_of(MEMBER, pod))


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Secret has, as the page says that it is made."""
    folder = tmp_path_factory.mktemp("kubernetes")
    shutil.copy(CONFIG, folder)
    made = folder / "certs"
    run = CliRunner(env={NAME: NAMES[0]}).invoke(
        certs, [str(made), "--config", str(folder / CONFIG.name)]
    )
    assert run.exit_code == 0, run.output
    ensure_secret(made / "cluster-secret")
    (generated,) = KUSTOMIZATION["secretGenerator"]
    for each in generated["files"]:
        target = folder / "given" / Path(each).name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(folder / each, target)
        target.chmod(0o440)
    return folder / "given"


# --- the configuration


@pytest.mark.parametrize("pod", NAMES)
def test_each_pod_is_the_member_of_its_name(pod: str) -> None:
    """Its address is the one that the Service gives it; all is on, and nothing is left open."""
    config = config_of(pod)
    service, namespace = MEMBERS["Service"], KUSTOMIZATION["namespace"]

    assert config.member.member_id == pod
    assert [each.member_id for each in config.cluster.members] == NAMES
    for each in config.cluster.members:
        host = f"{each.member_id}.{service['metadata']['name']}.{namespace}.svc"
        assert (each.member_host, urlsplit(each.client_url).hostname) == (host, host)
    assert SET["serviceName"] == service["metadata"]["name"]
    assert MEMBERS["Namespace"]["metadata"]["name"] == namespace
    assert what_is_off(config) == ()


def test_the_member_starts_with_the_configuration_of_the_map() -> None:
    """The map has the file, the container names it, and the volumes are where it writes."""
    config, mounts = config_of(NAMES[0]), mounts_of(MEMBER)
    volumes = {each["name"]: each for each in POD["volumes"]}

    assert KUSTOMIZATION["configMapGenerator"] == [
        {"name": volumes["config"]["configMap"]["name"], "files": [CONFIG.name]}
    ]
    assert MEMBER["args"] == ["serve", "--config", f"{mounts['config']}/{CONFIG.name}"]
    (claim,) = SET["volumeClaimTemplates"]
    for written in (config.member.data_dir, config.audit.file):
        assert Path(written or "").is_relative_to(mounts[claim["metadata"]["name"]])
    state = config.first_limits.state_bytes_max
    assert MEMBER["resources"]["limits"]["memory"] == "1Gi"
    assert 4 * state <= 2**30


@pytest.mark.parametrize("pod", NAMES)
def test_a_pod_has_its_own_files_that_the_configuration_names(
    secret: Path, tmp_path: Path, pod: str
) -> None:
    """The script of the first container picks them; the member accepts them, also once more."""
    own, text = tmp_path / "own", CONFIG.read_text("utf-8")
    own.mkdir()
    (script,) = FIRST["args"]
    all_of_it, of_the_pod = mounts_of(FIRST)["all"], mounts_of(FIRST)["secret"]
    script = script.replace(f"{all_of_it}/", f"{secret}/").replace(f"{of_the_pod}/", f"{own}/")
    environment = os.environ | environment_of(FIRST, pod)
    for _ in range(2):  # the node was started again
        subprocess.run([*FIRST["command"], script], env=environment, check=True, timeout=30)

    for name, folder in (("secret", own), ("data", tmp_path)):
        text = text.replace(f'"{mounts_of(MEMBER)[name]}/', f'"{folder}/')
    (tmp_path / CONFIG.name).write_text(text, "utf-8")
    config = config_of(pod, tmp_path / CONFIG.name)

    assert {each.name for each in own.iterdir()} == {
        Path(name or "").name
        for name in (
            config.cluster.secret_file, config.cluster.tls_ca_file, config.member.tls_cert_file,
            config.member.tls_key_file, config.http.tls_cert_file, config.http.tls_key_file,
        )
    }  # fmt: skip
    assert len(read_secrets(config.cluster)) == 1
    assert of_member(config) is not None
    assert of_door(config.http) is not None
    assert Server(config).member is not None


def test_the_secret_has_no_key_of_the_ca() -> None:
    """Nor anything else that no member needs; and only the first container sees all of it."""
    (generated,) = KUSTOMIZATION["secretGenerator"]
    volumes = {each["name"]: each for each in POD["volumes"]}

    assert {Path(each).name for each in generated["files"]} == {
        "cluster-secret",
        "ca.pem",
        *(f"member-{name}{end}" for name in NAMES for end in (".pem", "-key.pem")),
    }
    assert volumes["all"]["secret"]["secretName"] == generated["name"]
    assert "all" not in mounts_of(MEMBER)


# --- the pod


def test_the_probes_ask_what_there_is() -> None:
    """The process for living, the cluster for being ready; over TLS, as the port speaks it."""
    routes, paths = openapi_document("0")["paths"], {}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = MEMBER[probe]["httpGet"]
        assert "get" in routes[asked["path"]]
        assert (asked["port"], asked["scheme"]) == ("clients", "HTTPS")
        paths[probe] = asked["path"]

    assert paths["readinessProbe"] == "/health/ready"
    assert paths["livenessProbe"] == paths["startupProbe"] == "/health/live"


def test_all_name_the_same_ports_and_pods() -> None:
    """The configuration, the container, the service, the policy, the budget."""
    config, service = config_of(NAMES[0]), MEMBERS["Service"]["spec"]
    mine = config.cluster.members[0]
    ports = {"clients": config.http.bind_port, "members": mine.member_port}
    policy = MEMBERS["NetworkPolicy"]["spec"]
    among_members, from_clients = policy["ingress"]

    assert urlsplit(mine.client_url).port == config.http.bind_port
    assert {each["name"]: each["containerPort"] for each in MEMBER["ports"]} == ports
    assert {each["name"]: each["port"] for each in service["ports"]} == ports
    assert among_members["ports"] == [{"port": ports["members"]}]
    assert among_members["from"] == [{"podSelector": {"matchLabels": LABELS}}]
    assert from_clients == {"ports": [{"port": ports["clients"]}]}
    assert policy["policyTypes"] == ["Ingress"]
    assert service["selector"] == LABELS
    for selector in (
        SET["selector"],
        policy["podSelector"],
        MEMBERS["PodDisruptionBudget"]["spec"]["selector"],
        *(each["labelSelector"] for each in POD["topologySpreadConstraints"]),
    ):
        assert selector == {"matchLabels": LABELS}


def test_members_start_together_and_stop_one_by_one() -> None:
    """The first election needs all of them, every later one a majority."""
    assert SET["podManagementPolicy"] == "Parallel"
    assert MEMBERS["Service"]["spec"]["clusterIP"] == "None"
    assert MEMBERS["Service"]["spec"]["publishNotReadyAddresses"] is True
    assert MEMBERS["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert POD["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"


@pytest.mark.parametrize("pod", [POD, CLIENT_POD], ids=["member", "client"])
def test_a_pod_can_do_little(pod: dict[str, Any]) -> None:
    """No root, no capabilities, a root that cannot be written, bounded memory."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["enableServiceLinks"] is False
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"]["cpu"]


def test_the_user_of_the_pod_is_that_of_the_image() -> None:
    """The volumes are given to its group."""
    user = POD["securityContext"]["runAsUser"]

    assert f"useradd --system --uid {user} " in (ROOT / "Dockerfile").read_text("utf-8")
    assert POD["securityContext"]["fsGroup"] == POD["securityContext"]["runAsGroup"] == user
    assert MEMBERS["Namespace"]["metadata"]["labels"] == {
        "pod-security.kubernetes.io/enforce": "restricted"
    }


# --- the client


def test_the_client_finds_the_members_and_shows_its_own_token() -> None:
    """For the audience that members expect; the CA and the token are where it looks."""
    config, environment = config_of(NAMES[0]), environment_of(CLIENT_CONTAINER, "")
    (volume,) = CLIENT_POD["volumes"]
    token, authority = volume["projected"]["sources"]
    there = mounts_of(CLIENT_CONTAINER)[volume["name"]]

    named = environment["COORDINATOR_ENDPOINTS"].split(",")
    assert [each.strip() for each in named] == [each.client_url for each in config.cluster.members]
    assert token["serviceAccountToken"]["audience"] == config.oidc.audience
    assert token["serviceAccountToken"]["expirationSeconds"] * 1_000 < config.oidc.lifetime_ms_max
    assert environment["COORDINATOR_TOKEN_FILE"] == (
        f"{there}/{token['serviceAccountToken']['path']}"
    )
    assert environment["COORDINATOR_CA_FILE"] == f"{there}/ca.pem"
    assert f"create configmap {authority['configMap']['name']} --from-file=certs/ca.pem" in (
        FOLDER / "client.yaml"
    ).read_text("utf-8")
    account = CLIENT["ServiceAccount"]["metadata"]
    assert CLIENT_POD["serviceAccountName"] == account["name"]
    assert CLIENT_POD["automountServiceAccountToken"] is False
    subject = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert f"'oidc:{config.oidc.issuer}#{subject}'" in (FOLDER / "client.yaml").read_text("utf-8")


def test_the_client_is_asked_whether_it_is_the_one() -> None:
    """Its options are those of today, and the probes go to the port that they open."""
    _, verb, *arguments = [*CLIENT_CONTAINER["command"], *CLIENT_CONTAINER["args"]]
    context = elect.make_context(verb, arguments, resilient_parsing=False)

    assert context.params["name"] == "report"
    assert context.params["command"] == ("/opt/report/bin/report",)
    for probe, path in (("livenessProbe", "/live"), ("readinessProbe", "/ready")):
        asked = CLIENT_CONTAINER[probe]["httpGet"]
        assert asked == {"path": path, "port": context.params["door"][1]}


# --- the tool that makes manifests of it


@pytest.mark.check
def test_kubectl_makes_the_manifests(secret: Path, tmp_path: Path) -> None:
    """With hashes in the names, so that what changes restarts the members."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed here")
    shutil.copytree(FOLDER, tmp_path / "kubernetes", ignore=shutil.ignore_patterns("certs"))
    shutil.copytree(secret, tmp_path / "kubernetes" / "certs")
    done = subprocess.run(
        [program, "kustomize", str(tmp_path / "kubernetes")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}

    assert set(made) == {*MEMBERS, "ConfigMap", "Secret"}
    text = json.dumps(made["StatefulSet"])
    for kind in ("ConfigMap", "Secret"):
        name = made[kind]["metadata"]["name"]
        assert name.startswith("coordinator-")
        assert f'"{name}"' in text
    assert "registry.example/coordinator:0.1.0" in text
