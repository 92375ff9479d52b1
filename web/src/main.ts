import { mount } from "svelte";
import "./app.css";
import App from "./App.svelte";
import { listen } from "./lib/keys";

listen();
const target = document.getElementById("app");
if (!target) throw new Error("the page has no place for the application");
export default mount(App, { target });
