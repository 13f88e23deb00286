/** The shapes of the server's document, under the names by which they are spoken of here. */

import type { operations } from "./api.js";

type Json<Carrier extends { readonly content: { readonly "application/json": unknown } }> = Carrier["content"]["application/json"];

/** What may be said about a job, beside its name, its payload and its id. */
export type JobOptions = Omit<Json<operations["jobs_enqueue"]["requestBody"]>, "name" | "payload" | "id">;

/** A job as the server describes it; with its payload where the server shows payloads. */
export type JobInfo = Json<operations["jobs_get_job"]["responses"][200]>;
