"""`postbox provision` against both emulators, as an operator calls it. What is there is seen through Google's Node client."""

import contextlib
import json
import os
import queue
import re
import shlex
import shutil
import subprocess

import harness
import main_job
from harness import PROJECT, ROOT, Failure, check, say, wait_until

# {0} is a domain, so that several copies of it can live side by side.
FILE = """
project: postbox-dev
topics:
  - name: {0}.order.events
    labels: {{team: shop}}
    retention: 1d
  - name: {0}.stock.events
subscriptions:
  - name: {0}.order.events.mail-sender
    topic: {0}.order.events
    filter: attributes.event_type = "order.created"
    labels: {{team: mail}}
  - name: {0}.stock.events.shop-reader
    topic: {0}.stock.events
    retention: 3d
    dead_letter: {{topic: {0}.stock.dead, max_attempts: 7, subscription: {0}.stock.dead.ops-reader}}
"""
STEPS = 8  # four topics, four subscriptions
RIGHTS = """
project: postbox-dev
project_number: "42"
topics:
  - name: rights.order.events
    publishers: ["serviceAccount:shop@example.com"]
subscriptions:
  - name: rights.order.events.mail-sender
    topic: rights.order.events
    subscribers: ["serviceAccount:mail@example.com", "group:ops@example.com"]
"""
SCHEMA = """
project: postbox-dev
schemas:
  - name: order-event
    type: avro
    definition: '{0}'
topics:
  - name: schema.order.events
    schema: {{name: order-event, encoding: json}}
"""
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "int"}]}
GREW = {**AVRO, "fields": [*AVRO["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}


class Operator:
    def __init__(self, bed):
        self.bed = bed
        self.environment = {**os.environ, **bed.cluster.environment, "PGPORT": "1"}  # no database, unless a test says so
        self.environment.pop("PUBSUB_EMULATOR_HOST", None)
        self.files = 0

    def file(self, text, suffix="yaml"):
        self.files += 1
        path = self.bed.directory / f"provision-{self.files}.{suffix}"
        path.write_text(text, "utf-8")
        return path

    def command(self, path, *arguments):
        place = [] if "--endpoint" in arguments else ["--endpoint", self.bed.emulator.endpoint]
        return [self.bed.postbox, "provision", "--file", path, *place, *arguments]

    def run(self, path, *arguments, status=0, text=None, through=(), **environment):
        """(standard output, standard error). `through`: a command that runs this one."""
        done = subprocess.run([str(part) for part in (*through, *self.command(path, *arguments))], input=text, capture_output=True, text=True, check=False,
                              timeout=harness.TIMEOUT, env={**self.environment, **environment})
        if done.returncode != status:
            raise Failure(f"provision {arguments}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout, done.stderr

    def apply(self, text, *arguments, **more):
        return self.run(self.file(text), *arguments, **more)

    def everything(self, policies=True):
        return self.bed.emulator.resources({"show_all": True, "policies": policies})[0]

    def of_domain(self, everything, domain):
        """Topics and subscriptions of a domain, with its name taken out of them."""
        part = {kind: {name: value for name, value in everything[kind].items() if f"/{domain}." in name}
                for kind in ("topics", "subscriptions")}
        return json.loads(json.dumps(part, sort_keys=True).replace(f"/{domain}.", "/DOMAIN."))


def creates(operator):
    path = operator.file(FILE.format("first"))
    out, _ = operator.run(path, "--dry-run", status=3)
    check("a dry run shows what it would do", out.count("\n+ ") + out.startswith("+ "), STEPS)
    check("and changes nothing", operator.everything()["topics"], {})
    out, errors = operator.run(path)
    check("the first run creates everything", out.endswith(f"{STEPS} created, 0 changed\n"), True)
    check("it says that dead letters lack rights", "project_number is missing" in errors)
    seen = operator.of_domain(operator.everything(), "first")
    reader = seen["subscriptions"][f"projects/{PROJECT}/subscriptions/DOMAIN.order.events.mail-sender"]
    check("Google's client sees the topics", sorted(name.rpartition("/")[2] for name in seen["topics"]),
          ["DOMAIN.order.events", "DOMAIN.order.events.dlq", "DOMAIN.stock.dead", "DOMAIN.stock.events"])
    check("and a subscription as it was described", (
        reader["enableMessageOrdering"], reader["enableExactlyOnceDelivery"], reader["filter"], reader["ackDeadlineSeconds"],
        int(reader["messageRetentionDuration"]["seconds"]), reader["retainAckedMessages"], reader["labels"],
        int(reader["retryPolicy"]["minimumBackoff"]["seconds"]), int(reader["retryPolicy"]["maximumBackoff"]["seconds"]),
        reader["deadLetterPolicy"]["deadLetterTopic"].rpartition("/")[2], reader["deadLetterPolicy"]["maxDeliveryAttempts"],
        (reader["expirationPolicy"] or {}).get("ttl")),
        (True, True, 'attributes.event_type = "order.created"', 60, 7 * 86400, True, {"team": "mail"}, 10, 600,
         "DOMAIN.order.events.dlq", 5, None))
    check("the second run changes nothing", operator.run(path)[0], "nothing to change\n")
    check("nor has a dry run anything to show", operator.run(path, "--dry-run")[0], "nothing to change\n")
    check("from standard input, as JSON", operator.run("-", text=json.dumps({"project": PROJECT, "topics": [{"name": "first.order.events"}]}))[0],
          "nothing to change\n")
    check("what happened changed nothing", operator.of_domain(operator.everything(), "first"), seen)


def changes(operator):
    before = operator.of_domain(operator.everything(), "first")
    text = FILE.format("first").replace("max_attempts: 7", "max_attempts: 9").replace("retention: 1d", "retention: 2d")
    if operator.bed.emulator.kind == "google":
        _, errors = operator.apply(FILE.format("first").replace("{team: mail}", "{team: post}"), status=1)
        check("what a server does not change is its error", "labels is not a known Subscription field" in errors)
        text = text.replace("filter:", "ack_deadline: 30s\n    filter:")
    else:
        text = text.replace("{team: mail}", "{team: post}")
    out, _ = operator.apply(text)
    check("a changed file changes just that", out.splitlines(), [
        f"~ topic projects/{PROJECT}/topics/first.order.events", "    retention: 1d -> 2d",
        f"~ subscription projects/{PROJECT}/subscriptions/first.order.events.mail-sender",
        "    ack_deadline: 60s -> 30s" if operator.bed.emulator.kind == "google" else "    labels: {team=mail} -> {team=post}",
        f"~ subscription projects/{PROJECT}/subscriptions/first.stock.events.shop-reader",
        f"    dead_letter: projects/{PROJECT}/topics/first.stock.dead after 7 attempts -> projects/{PROJECT}/topics/first.stock.dead after 9 attempts",
        "0 created, 3 changed"])
    after = operator.of_domain(operator.everything(), "first")
    mail, shop = (f"projects/{PROJECT}/subscriptions/DOMAIN.{name}" for name in ("order.events.mail-sender", "stock.events.shop-reader"))
    before["subscriptions"][mail].update({"ackDeadlineSeconds": 30} if operator.bed.emulator.kind == "google" else {"labels": {"team": "post"}})
    before["subscriptions"][shop]["deadLetterPolicy"]["maxDeliveryAttempts"] = 9
    topic = f"projects/{PROJECT}/topics/DOMAIN.order.events"
    for one in (after["topics"][topic], before["topics"][topic]):
        retention = one.pop("messageRetentionDuration")
    for one in (*before["subscriptions"].values(), *after["subscriptions"].values()):
        one.pop("topicMessageRetentionDuration", None)  # follows the topic's
    check("and nothing else", after, before)
    check("the retention of the topic is another", retention is not None)
    check("it is not changed back and forth", operator.apply(text)[0], "nothing to change\n")


def refuses(operator):
    before = operator.everything()
    added = "topics:\n  - name: first.brand.new"
    for what, old, new in (("a filter", 'filter: attributes.event_type = "order.created"', "filter: attributes.event_type = \"other\""),
                           ("the ordering", "    retention: 3d", "    ordering: false"),
                           ("the topic", "    topic: first.stock.events", "    topic: first.order.events")):
        text = FILE.format("first").replace(old, new).replace("topics:", added, 1)
        _, errors = operator.apply(text, status=1)
        check(f"{what} cannot be changed, and the way out is named", "cannot be changed" in errors and "another name" in errors)
    _, errors = operator.apply("project: postbox-dev\ntopics: [{name: first.brand.new}]\nsubscriptions: [{name: first.a.b.c-d, topic: first.a.b}]", status=1)
    check("a topic that is nowhere is refused", "neither in the file nor on the server" in errors)
    _, errors = operator.apply("project: postbox-dev\ntopcs: []\ntopics: [{name: first.brand.new, retenton: 7d}]", status=1)
    check("an unknown key is refused with the nearest one", "did you mean topics?" in errors and "topics[0]: unknown key \"retenton\" (did you mean retention?)" in errors)
    check("nothing was changed meanwhile", operator.everything(), before)


def killed(operator):
    """At each step: once it is printed, SIGKILL. The next run goes on from there."""
    for point in range(1, STEPS + 1):
        path = operator.file(FILE.format(f"killed{point}"))
        lines = queue.Queue()
        process = operator.bed.start("killed", operator.command(path), env=operator.environment, on_line=lines.put)
        for _ in range(point):
            while not lines.get(timeout=harness.TIMEOUT).startswith("+ "):
                pass
        process.kill()
        process.wait()
        out, _ = operator.run(path)
        if not re.search(r"created, 0 changed$|nothing to change$", out):
            raise Failure(f"after a run that was killed at step {point}: {out}")
    everything = operator.everything(policies=False)
    expected = operator.of_domain(everything, "killed1")
    check("it is whole", (len(expected["topics"]), len(expected["subscriptions"])), (4, 4))
    check(f"killed at each of {STEPS} steps and repeated, it ends the same",
          [point for point in range(2, STEPS + 1) if operator.of_domain(everything, f"killed{point}") != expected], [])


def killed_in_a_call(operator):
    """In the middle of a call, which the embedded emulator holds back; and calls whose answers are lost."""
    emulator = operator.bed.emulator
    for number, rpc in enumerate(("GetTopic", "CreateTopic", "CreateSubscription")):
        path = operator.file(FILE.format(f"held{number}"))
        emulator.fault(f"--clear rpc={rpc},action=delay,latency-ms=1500,count=1,skip=1")
        fired = emulator.stats()["faults_fired"]
        process = operator.bed.start("held", operator.command(path), env=operator.environment)
        wait_until(f"{rpc} is held", lambda: emulator.stats()["faults_fired"] > fired)
        process.kill()
        process.wait()
        operator.run(path)
    path = operator.file(FILE.format("lost"))
    emulator.fault("--clear rpc=CreateTopic,code=UNAVAILABLE,count=1,after-effect rpc=CreateSubscription,code=DEADLINE_EXCEEDED,count=1,after-effect")
    out, _ = operator.run(path)
    check("an answer that is lost is no error, and counted once", out.splitlines()[-1], f"{STEPS} created, 0 changed")
    emulator.fault("--clear rpc=GetSubscription,code=PERMISSION_DENIED,count=1")
    _, errors = operator.run(path, status=1)
    check("an error that does not pass is named with its resource", "subscriptions/lost.order.events.dlq-monitor: PERMISSION_DENIED" in errors)
    emulator.fault("--clear")
    everything = operator.everything(policies=False)
    expected = operator.of_domain(everything, "killed1")
    check("all of them end the same", [domain for domain in ("held0", "held1", "held2", "lost") if operator.of_domain(everything, domain) != expected], [])


def rights(operator):
    if operator.bed.emulator.kind == "google":
        before = operator.everything()
        _, errors = operator.apply(RIGHTS, status=1)
        check("a server without policies is refused, and the option named", "no IAM policies" in errors and "--skip-unsupported" in errors)
        check("before anything is changed", operator.everything(), before)
        out, errors = operator.apply(RIGHTS, "--skip-unsupported")
        check("with it the rest is done", (out.splitlines()[-1], errors.count("warning: left out")), ("4 created, 0 changed, 5 left out", 5))
        return
    out, errors = operator.apply(RIGHTS)
    check("rights are granted", (out.splitlines()[-1], "project_number" in errors), ("4 created, 3 changed", False))
    agent = "serviceAccount:service-42@gcp-sa-pubsub.iam.gserviceaccount.com"

    def held():
        policies = operator.everything()["policies"]
        return {name.rpartition("/")[2]: {one["role"]: sorted(one["members"]) for one in bindings}
                for name, bindings in policies.items() if "/rights." in name and bindings}

    expected = {
        "rights.order.events": {"roles/pubsub.publisher": ["serviceAccount:shop@example.com"]},
        "rights.order.events.dlq": {"roles/pubsub.publisher": [agent]},
        "rights.order.events.mail-sender": {"roles/pubsub.subscriber": sorted(["serviceAccount:mail@example.com", "group:ops@example.com", agent])}}
    check("publishers on the topic only, subscribers on the subscription only, the service agent for dead letters", held(), expected)
    check("once", operator.apply(RIGHTS)[0], "nothing to change\n")
    operator.apply(RIGHTS.replace("serviceAccount:shop@example.com", "user:new@example.com"))
    expected["rights.order.events"]["roles/pubsub.publisher"] = ["serviceAccount:shop@example.com", "user:new@example.com"]
    check("a right is added, and none is taken away", held(), expected)


def schemas(operator):
    path = operator.file(SCHEMA.format(json.dumps(AVRO)))
    if operator.everything()["schemas"] is None:
        _, errors = operator.run(path, status=1)
        check("a server without schemas is refused", "no schemas (UNIMPLEMENTED)" in errors)
        return
    out, _ = operator.run(path)
    check("a schema is created before its topic", [line for line in out.splitlines() if line.startswith("+")],
          [f"+ schema projects/{PROJECT}/schemas/order-event", f"+ topic projects/{PROJECT}/topics/schema.order.events"])
    check("once", operator.run(path)[0], "nothing to change\n")
    everything = operator.everything()
    name = f"projects/{PROJECT}/schemas/order-event"
    check("the topic has it", everything["topics"][f"projects/{PROJECT}/topics/schema.order.events"]["schemaSettings"]["schema"], name)
    first = everything["schemas"][name]["revisionId"]
    check("another layout is the same definition", operator.apply(SCHEMA.format(json.dumps(AVRO, indent=2).replace("\n", " ")))[0], "nothing to change\n")
    out, _ = operator.apply(SCHEMA.format(json.dumps(GREW)))
    check("another definition is a new revision", (out.splitlines()[-1], operator.everything()["schemas"][name]["revisionId"] != first),
          ("0 created, 1 changed", True))
    _, errors = operator.apply(SCHEMA.format(json.dumps(AVRO)).replace("avro", "protocol_buffer"), status=1)
    check("its type cannot be changed", "the type of a schema cannot be changed" in errors)
    before = operator.everything()
    _, errors = operator.apply(SCHEMA.format('{"type": "nonsense"}').replace("order-event", "bad-event").replace("schema.", "bad."), status=1)
    check("what is no definition is refused, and nothing changed", ("INVALID_ARGUMENT" in errors, operator.everything()), (True, before))


def unsupported(operator):
    """A field that the embedded emulator does not do: it is named."""
    text = ("project: postbox-dev\ntopics:\n  - name: secret.order.events\n    kms_key: projects/p/locations/l/keyRings/r/cryptoKeys/k\n"
            "    labels: {team: x}\n  - name: secret.stock.events\n")
    _, errors = operator.apply(text, status=1)
    check("the field is named, and the option", "UNIMPLEMENTED" in errors and "kms_key_name" in errors and "--skip-unsupported" in errors)
    for expected in ("2 created, 0 changed, 1 left out", "nothing to change, 1 left out"):
        out, errors = operator.apply(text, "--skip-unsupported")
        check("with it the rest is done, with a warning each time", (out.splitlines()[-1], "left out" in errors), (expected, True))
    topics = operator.everything(policies=False)["topics"]
    check("labels are there", topics[f"projects/{PROJECT}/topics/secret.order.events"]["labels"], {"team": "x"})


HOSTILE = """
project: postbox-dev
project_number: "42"
schemas:
  - name: quoted-event
    type: avro
    definition: "{\\"type\\": \\"record\\", \\"doc\\": \\"it's $HOME `id` ${file(1)} %{if} \\\\n\\", \\"name\\": \\"Q\\", \\"fields\\": []}\\n"
topics:
  - name: print.order.events
    retention: 1d
    labels: {team: shop, a: b}
    kms_key: projects/p/locations/l/keyRings/r/cryptoKeys/k
    storage_regions: [europe-west1, europe-west4]
    enforce_in_transit: true
    schema: {name: quoted-event, encoding: json}
    publishers: ["serviceAccount:shop@example.com"]
subscriptions:
  - name: print.order.events.mail-sender
    topic: print.order.events
    filter: attributes.a = "it's $(touch /tmp/postbox-provision-owned) \\"x\\" ${x}"
    retain_acked: false
    labels: {team: mail}
"""


def prints(operator):
    path = operator.file(HOSTILE)
    script = operator.file(operator.run(path, "--print", "gcloud")[0], "sh")
    for shell in ("bash", "sh"):
        subprocess.run([shell, "-n", script], check=True)
    # A gcloud that writes down what it is called with.
    fake = operator.bed.directory / "fake"
    fake.mkdir()
    (fake / "gcloud").write_text(f"#!/usr/bin/env python3\nimport json, sys\nopen({str(fake / 'calls')!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n")
    (fake / "gcloud").chmod(0o755)
    subprocess.run(["sh", script], check=True, env={**os.environ, "PATH": f"{fake}:{os.environ['PATH']}"})
    calls = [json.loads(line) for line in (fake / "calls").read_text().splitlines()]
    check("the commands of gcloud, in order", [" ".join(call[1:3]) for call in calls], [
        "schemas create", "topics create", "topics create", "topics add-iam-policy-binding", "topics add-iam-policy-binding",
        "subscriptions create", "subscriptions create", "subscriptions add-iam-policy-binding"])
    definition = '{"type": "record", "doc": "it\'s $HOME `id` ${file(1)} %{if} \\n", "name": "Q", "fields": []}\n'
    check("a definition comes through the shell as it is", f"--definition={definition}" in calls[0])
    check("and so does a filter", '--message-filter=attributes.a = "it\'s $(touch /tmp/postbox-provision-owned) \\"x\\" ${x}"' in calls[5])
    check("nothing of it was run", os.path.exists("/tmp/postbox-provision-owned"), False)
    terraform = operator.run(path, "--print", "terraform")[0]
    check("Terraform: braces are closed outside of strings", balanced(terraform))
    check("no template opens in a string", re.search(r'(?<![$])[$]\{|(?<!%)%\{', terraform) is None)
    if shutil.which("terraform"):
        done = subprocess.run(["terraform", "fmt", "-check", "-diff", "-"], input=terraform, text=True, capture_output=True, check=False,
                              env={**os.environ, "CHECKPOINT_DISABLE": "1"})
        check(f"terraform fmt reads it and has nothing to change {done.stdout if done.returncode else ''}{done.stderr if done.returncode else ''}", done.returncode, 0)
    example = re.search(r"```yaml\n(.*?)```", (ROOT / "docs/guides/provision.md").read_text("utf-8"), re.DOTALL)[1]
    (operator.bed.directory / "order-event.avsc").write_text(json.dumps(AVRO))
    out, errors = operator.run(operator.file(example), "--print", "gcloud")
    check("the example of the documentation is good, without a warning", ("topics create shop.order.events" in out, errors), (True, ""))
    check("--print needs no server", "gcloud" in subprocess.run(
        [str(operator.bed.postbox), "provision", "--file", str(path), "--print", "gcloud"], capture_output=True, text=True, check=True, env=operator.environment).stdout)


def balanced(hcl):
    bare = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', hcl)
    depth = 0
    for letter in bare:
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(letter, 0)
        if depth < 0:
            return False
    return depth == 0 and '"' not in bare.replace('""', "")


def command_line(operator):
    postbox = str(operator.bed.postbox)
    for arguments in (["provision"], ["provision", "--file", "x", "--print", "pulumi"], ["provision", "--file", "x", "--print", "gcloud", "--dry-run"]):
        done = subprocess.run([postbox, *arguments], capture_output=True, text=True, check=False, env=operator.environment)
        check(f"wrong: {shlex.join(arguments)}", done.returncode, 2)
    text = subprocess.run([postbox, "provision", "--help"], capture_output=True, text=True, check=True).stdout
    check("--help has an example", "Example:\n  postbox provision" in text)
    check("a file that is not there", "cannot be read" in operator.run("/nowhere.yaml", status=1)[1])
    check("a directory is no file", "/tmp" in operator.run("/tmp", status=1)[1])


def real_gcloud(operator):
    """The commands, run by gcloud against Google's emulator, make what the file describes."""
    path = operator.file(HOSTILE.replace("print.", "gcloud.").replace("quoted-event", "gcloud-event")
                         .replace('project_number: "42"', "").replace("    publishers", "    # publishers"))
    script = operator.file(operator.run(path, "--print", "gcloud")[0], "sh")
    environment = {**os.environ, "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB": f"{operator.bed.emulator.endpoint}/", "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
                   "CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "CLOUDSDK_CONFIG": str(operator.bed.directory / "gcloud-config")}
    done = subprocess.run(["sh", script], capture_output=True, text=True, check=False, env=environment, timeout=harness.TIMEOUT)
    check(f"gcloud takes its commands {done.stderr if done.returncode else ''}", done.returncode, 0)
    check("and makes what the file describes", operator.run(path, "--dry-run")[0], "nothing to change\n")


def together(operator):
    """Three runs at once of one file: each finds that the others have made something meanwhile."""
    path = operator.file(FILE.format("together"))
    processes = [operator.bed.start("together", operator.command(path), env=operator.environment) for _ in range(3)]
    check("three runs at once all end well", [process.wait() for process in processes], [0, 0, 0])
    everything = operator.everything(policies=False)
    check("and have made it once", operator.of_domain(everything, "together"), operator.of_domain(everything, "killed1"))


def round_trip(operator):
    """The databases of the main job, of which nothing is on the server yet."""
    bed = operator.bed
    main_job.set_up(bed)
    for database in ("catalog", "catalog_read", "points"):
        path = bed.directory / f"{database}.yaml"
        environment = {**bed.cluster.environment, "PGDATABASE": database}
        operator.run(path, "--from-database", **environment)
        if database == "points":
            # Its topic is somebody else's, and no database here publishes to it.
            check("without its topic it is refused", "neither in the file" in operator.run(path, status=1, **environment)[1])
            path.write_text(path.read_text() + f"topics:\n  - name: {main_job.POINTS_TOPIC}\n")
        out, _ = operator.run(path, **environment)
        check(f"what database {database} needs is made", out.splitlines()[-1].endswith("created, 0 changed"))
        check("and is what the database says", operator.run(path, "--dry-run", **environment)[0], "nothing to change\n")
    check("a file that is there is not overwritten",
          "name another file" in operator.run(bed.directory / "catalog.yaml", "--from-database", status=1, **{**bed.cluster.environment, "PGDATABASE": "catalog"})[1])
    without_space = ("sh", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "without-space")
    path = bed.directory / "large.yaml"
    check("where there is no space for it, that is said",
          "cannot be written" in operator.run(path, "--from-database", status=1, through=without_space, **{**bed.cluster.environment, "PGDATABASE": "catalog"})[1])
    check("and no part of it stays behind", path.exists(), False)
    pullers = [bed.puller("catalog_read"), bed.puller("points")]
    main_job.run_catalog(bed, videos=20)
    main_job.run_points(bed, pullers[1], users=5, events=30)
    for puller in pullers:
        check(f"the puller of {puller.database} ends in order when it is told to", puller.stop(), 0)


@contextlib.contextmanager
def nobody_answers(operator):
    """A server that is not there is tried for some seconds, and the rest of a test goes on meanwhile."""
    path = operator.file("project: postbox-dev\ntopics: [{name: a.b.c}]")
    process = operator.bed.start("nobody", operator.command(path, "--endpoint", "http://127.0.0.1:1"), env=operator.environment)
    yield
    check("nobody answers", (process.wait(), "UNAVAILABLE" in process.text()), (1, True))


def whole(operator, emulator):
    command_line(operator)
    creates(operator)
    changes(operator)
    refuses(operator)
    rights(operator)
    schemas(operator)
    prints(operator)
    if emulator == "google":
        real_gcloud(operator)
    # From here on there is a lot on the server, which makes each look at all of it slow.
    killed(operator)
    together(operator)
    if emulator == "embedded":
        killed_in_a_call(operator)
        unsupported(operator)
    round_trip(operator)


def provision(emulator):
    with harness.Testbed(emulator, main_job.emulator_flags(emulator)) as bed:
        operator = Operator(bed)
        with nobody_answers(operator):
            whole(operator, emulator)
        say("    provisioned")
