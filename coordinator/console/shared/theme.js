// Dark or light: as the system says, until the person says otherwise.

const THEME = "coordinator.theme";
const NEXT = { system: "light", light: "dark", dark: "system" };

/** Put the chosen theme on the page; called before anything is drawn. */
export function applyTheme() {
  document.documentElement.dataset.theme = chosen();
}

/** Make `button` step through the themes; its name says which is on. */
export function themeButton(button) {
  const show = () => {
    button.textContent = { system: "Auto", light: "Light", dark: "Dark" }[chosen()];
    button.setAttribute("aria-label", `Theme: ${button.textContent}. Change it`);
    applyTheme();
  };
  button.addEventListener("click", () => {
    try {
      localStorage.setItem(THEME, NEXT[chosen()]);
    } catch {
      document.documentElement.dataset.theme = NEXT[chosen()];
    }
    show();
  });
  show();
}

function chosen() {
  try {
    const said = localStorage.getItem(THEME);
    return said in NEXT ? said : "system";
  } catch {
    return document.documentElement.dataset.theme || "system";
  }
}
