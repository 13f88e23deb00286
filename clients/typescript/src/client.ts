/** The way to one server: its queues and its channels. */

import { Channel } from "./channel.js";
import { Queue } from "./queue.js";
import { type ClientOptions, Transport } from "./transport.js";

/** A server that `ironclaim serve` runs, or a service with its application mounted. Throws InvalidArgument. */
export class Client {
  readonly #transport: Transport;

  constructor(options: ClientOptions) {
    this.#transport = new Transport(options);
  }

  /** A queue by its name; nothing is asked. */
  queue(name: string): Queue {
    return new Queue(this.#transport, name);
  }

  /** A channel by its name; nothing is asked. */
  channel(name: string): Channel {
    return new Channel(this.#transport, name);
  }
}
