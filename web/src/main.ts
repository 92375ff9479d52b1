import { mount } from "svelte";
import "./app.css";
import { base } from "./api/client";
import { embedded } from "./api/embedded";
import App from "./App.svelte";
import { listen } from "./lib/keys";

listen();
// The address changes while the page stays; what it names relative to itself must not move with it.
const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
if (icon && !embedded) icon.href = new URL(`assets/${icon.href.split("/").pop()}`, base).href;
const target = document.getElementById("app");
if (!target) throw new Error("the page has no place for the application");
export default mount(App, { target });
