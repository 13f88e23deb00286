/** The shapes that the server's document gives, under the names by which they are spoken of here. */

export interface JobInfo { readonly id: string; readonly state: string }
export interface JobOptions { readonly priority?: number }
