"""control/demo's program: both use cases for real, with what happened, counts, and latencies."""

import argparse

import harness
import main_job
from harness import say


def demo(emulator):
    names = {"embedded": "Postbox's embedded emulator", "google": "Google's emulator"}
    say(f"starting a private Postgres and {names[emulator]} with topics and subscriptions")
    # With fsync, as in production, so that the latencies mean something.
    with harness.Testbed(emulator, main_job.emulator_flags(emulator), settings={"fsync": "on"}, resources=main_job.RESOURCES) as bed:
        say("creating three databases with the extension; starting two pullers")
        main_job.set_up(bed)
        pullers = [bed.puller("catalog_read"), bed.puller("points")]
        events = main_job.run_catalog(bed)
        points, duplicates = main_job.run_points(bed, pullers[1])
        say("latency: one commit at a time, from COMMIT to visible in the projection of the other database")
        latencies = main_job.measure_latency(bed)
        for puller in pullers:
            harness.check(f"the puller of {puller.database} ends in order when it is told to", puller.stop(), 0)
        say("")
        say(f"(a) {events} events emitted, published, and applied; the projection equals its source")
        say(f"(b) {points} messages, {duplicates} duplicates; every event counted once")
        say(f"commit to visible projection, {len(latencies)} samples: "
            f"p50 {1000 * main_job.percentile(latencies, 0.5):.1f} ms, p99 {1000 * main_job.percentile(latencies, 0.99):.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Runs both use cases of Postbox for real.")
    parser.add_argument("--google-emulator", action="store_true", help="use Google's emulator instead of the embedded one")
    harness.main(demo, "google" if parser.parse_args().google_emulator else "embedded")
