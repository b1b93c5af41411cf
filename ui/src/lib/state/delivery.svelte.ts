/** How a sandbox's work leaves: the steps as they happen, the pull request, and what a person can do about either. */
import type { Client, CourierError } from "../ipc/client";
import type { Delivery, DeliverOptions, PullRequestDraft, Sandbox, Step } from "../types";
import { Loading } from "./loading.svelte";

/** What the bar at the foot of the page is about now. The first that holds is shown. */
export type DeliveryState =
  | { kind: "running" }
  | { kind: "held"; step: Step | null }
  | { kind: "failed"; step: Step }
  | { kind: "merged" | "closed" | "opened" }
  | { kind: "skipped"; reason: string }
  | { kind: "nothing" }
  | { kind: "ready" };

export class SandboxDelivery {
  #client: Client;
  #id: string;
  #loading: Loading<Delivery>;
  readonly draft: Loading<PullRequestDraft>;

  constructor(client: Client, id: string) {
    this.#client = client;
    this.#id = id;
    this.#loading = new Loading(() => client.delivery(id));
    this.draft = new Loading(() => client.deliveryDraft(id));
  }

  get value(): Delivery | null {
    return this.#loading.value;
  }
  get error(): CourierError | null {
    return this.#loading.error;
  }

  load(): Promise<void> {
    return this.#loading.load();
  }

  async deliver(options: Partial<DeliverOptions> = {}): Promise<void> {
    await this.#client.sandboxDeliver(this.#id, { title: null, body: null, isDraft: null, isConfirmed: false, ...options });
    await this.load();
  }
}

export function deliveryState(delivery: Delivery, sandbox: Sandbox): DeliveryState {
  const pullRequest = sandbox.pullRequest ?? delivery.pullRequest;
  if (delivery.isRunning || sandbox.activity === "stopping") return { kind: "running" };
  if (delivery.held !== null) return { kind: "held", step: delivery.steps.find(({ status }) => status === "held") ?? null };
  const failed = delivery.steps.find(({ status }) => status === "failed");
  if (failed !== undefined) return { kind: "failed", step: failed };
  if (pullRequest?.status === "merged") return { kind: "merged" };
  if (pullRequest?.status === "created") return { kind: pullRequest.isClosed ? "closed" : "opened" };
  if (pullRequest?.status === "skipped") return { kind: "skipped", reason: pullRequest.reason };
  if (delivery.steps.length > 0 && delivery.steps.some(({ kind, status }) => kind === "push" && status === "skipped")) return { kind: "nothing" };
  return { kind: "ready" };
}

/** Whether stopping now, without waiting, would lose nothing: what there was is in the vault. */
export function isSaved(delivery: Delivery | null): boolean {
  const step = delivery?.steps.find(({ kind }) => kind === "checkpoint");
  return step?.status === "done" || step?.status === "skipped";
}
